package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flash/store"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// operations are what a turn may be, each as often among all as its weight says.
var operations = []struct {
	weight int
	do     func(f *family, ctx context.Context, w *witness) error
}{
	{30, (*family).exec},
	{15, (*family).checkpoint},
	{15, (*family).rewind},
	{9, (*family).fork},
	{5, (*family).stopAndStart},
	{7, (*family).killMachine},
	{4, (*family).removeOne},
	{6, (*family).pin},
	{4, (*family).removeCheckpoint},
	{5, (*family).collect},
}

// any does a random operation on a random VM.
func (f *family) any(ctx context.Context) error {
	total := 0
	for _, op := range operations {
		total += op.weight
	}
	n := f.rng.IntN(total)
	for _, op := range operations {
		if n -= op.weight; n < 0 {
			return op.do(f, ctx, f.pick())
		}
	}
	return nil
}

func (f *family) nextToken() string {
	f.made++
	return fmt.Sprint(f.made)
}

// exec gives the process a token, with the checkpoint that comes before every command.
func (f *family) exec(ctx context.Context, w *witness) error {
	token := f.nextToken()
	f.begins(pending{what: "exec", vm: w.id, token: token, target: -1, pin: -1})
	before := w.now
	out, err := f.sh(ctx, w, f.s.Guest.Mark(token), true)
	if err != nil {
		return err
	}
	if err := f.compare(w, out, before.with(token)); err != nil {
		return err
	}
	f.ended()
	return nil
}

func (f *family) checkpoint(ctx context.Context, w *witness) error {
	f.begins(pending{what: "checkpoint", vm: w.id, target: -1, pin: -1})
	c, err := f.api().Checkpoint(ctx, host.CheckpointRequest{ID: w.id, Label: "soak"})
	if err != nil {
		return f.failed("checkpoint %s: %w", w.id, err)
	}
	w.at[c.Number], w.head = w.now, c.Number
	f.ended()
	return nil
}

func (f *family) rewind(ctx context.Context, w *witness) error {
	to := f.pickAt(w)
	f.begins(pending{what: "rewind", vm: w.id, target: to, pin: -1})
	r, err := f.api().Rewind(ctx, host.RewindRequest{ID: w.id, Checkpoint: to})
	if err != nil {
		return f.failed("rewind %s to %d: %w", w.id, to, err)
	}
	if r.Saved != nil {
		w.at[r.Saved.Number] = w.now
	}
	w.head, w.now = to, w.at[to]
	if err := f.look(ctx, w, w.now); err != nil {
		return err
	}
	f.ended()
	return nil
}

// fork makes a child or two, and has one of them diverge. With no room for them one VM goes.
func (f *family) fork(ctx context.Context, w *witness) error {
	room := f.max - len(f.vms)
	if room == 0 {
		return f.removeOne(ctx, w)
	}
	at := f.pickAt(w)
	p := pending{what: "fork", vm: w.id, target: at, pin: -1}
	for range 1 + f.rng.IntN(min(2, room)) {
		p.forks = append(p.forks, f.name+"-"+f.nextToken())
	}
	f.begins(p)
	children, err := f.api().Fork(ctx, host.ForkRequest{From: w.id, Checkpoint: &at, Count: len(p.forks), IDs: p.forks})
	if err != nil {
		return f.failed("fork %s from %d: %w", w.id, at, err)
	}
	if len(children) != len(p.forks) {
		return f.failed("fork %s from %d: %d children, asked for %d", w.id, at, len(children), len(p.forks))
	}
	for _, id := range p.forks {
		point := w.at[at]
		f.vms[id] = &witness{id: id, now: point, at: map[int]memory{0: point}, pinned: map[int]bool{}}
	}
	for _, id := range p.forks {
		if err := f.look(ctx, f.vms[id], f.vms[id].now); err != nil {
			return err
		}
	}
	f.ended()
	if err := f.exec(ctx, f.vms[p.forks[0]]); err != nil {
		return err
	}
	return f.look(ctx, w, w.now)
}

func (f *family) stop(ctx context.Context, w *witness) error {
	f.begins(pending{what: "stop", vm: w.id, target: -1, pin: -1})
	vm, err := f.api().Stop(ctx, host.StopRequest{ID: w.id})
	if err != nil {
		return f.failed("stop %s: %w", w.id, err)
	}
	if vm.State != host.StateStopped || vm.Head == nil {
		return f.failed("stop %s: it is %s, its head %v", w.id, vm.State, vm.Head)
	}
	w.head = *vm.Head
	w.at[w.head] = w.now
	f.ended()
	return nil
}

func (f *family) stopAndStart(ctx context.Context, w *witness) error {
	if err := f.stop(ctx, w); err != nil {
		return err
	}
	f.begins(pending{what: "start", vm: w.id, target: -1, pin: -1})
	if err := f.start(ctx, w); err != nil {
		return err
	}
	f.pending = nil // start has counted itself
	return nil
}

const (
	noticeLimit = 20 * time.Second       // for a killed machine to be seen
	midway      = 400 * time.Millisecond // a kill comes up to this long after an operation has begun
)

// killMachine kills a VM's machine, mostly in the middle of something, and brings the VM back.
func (f *family) killMachine(ctx context.Context, w *witness) error {
	vm, err := f.api().Get(ctx, w.id)
	if err != nil {
		return f.failed("get %s: %w", w.id, err)
	}
	what := []func(context.Context, *witness) error{
		f.exec, f.checkpoint, f.rewind, func(context.Context, *witness) error { return nil },
	}[f.rng.IntN(4)]
	delay := time.Duration(f.rng.Int64N(int64(midway)))
	if f.s.Guest.Crash != "" {
		delay /= 200 // those guests are quick
	}
	killed := make(chan error, 1)
	go func() {
		time.Sleep(delay) // somewhere in it
		killed <- f.kill(ctx, vm)
	}()
	err = what(ctx, w)
	cut := f.pending
	if kerr := <-killed; kerr != nil {
		return kerr
	}
	switch {
	case err == nil:
		f.begins(pending{what: "kill of a machine", vm: w.id, target: -1, pin: -1})
	case !told(err):
		return err // not an end of the guest but a broken promise
	default:
		f.note("its machine was killed in it: %.120v", errors.Unwrap(err))
		f.s.count(f.s.report.Cut, cut.what)
	}
	if err := f.noticed(ctx, w, vm.PID); err != nil {
		return err
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	f.pending = nil
	f.s.did("kill of a machine")
	return nil
}

func (f *family) kill(ctx context.Context, vm host.VM) error {
	if f.s.Guest.Crash != "" {
		no := false
		f.api().Exec(ctx, host.ExecRequest{ID: vm.ID, Checkpoint: &no, Command: guest.ExecRequest{Argv: []string{f.s.Guest.Crash}}}, guest.Streams{})
		return nil // nobody is left to say that it went well
	}
	return f.s.Place.KillMachine(ctx, vm)
}

// told tells whether an error is one that the end of a guest explains.
func told(err error) bool {
	var e *host.Error
	return errors.As(err, &e) && slices.Contains([]host.Code{host.CodeGuestCrashed, host.CodeVMNotRunning, host.CodeExecInterrupted, host.CodeGuest, host.CodeEngine, host.CodeDaemon, host.CodeExecFailed}, e.Code)
}

// noticed waits until the VM isn't taken for what was killed any more: it is crashed, or has another machine.
func (f *family) noticed(ctx context.Context, w *witness, pid int) error {
	for deadline := time.Now().Add(noticeLimit); ; {
		vm, err := f.api().Get(ctx, w.id)
		if err != nil {
			return f.failed("get %s: %w", w.id, err)
		}
		if vm.State == host.StateCrashed || vm.State == host.StateRunning && (vm.PID != pid || f.s.Guest.Crash != "") {
			return nil
		}
		if time.Now().After(deadline) {
			return f.failed("%s after %s is still told to be %s, although its machine was killed", w.id, noticeLimit, vm.State)
		}
		select {
		case <-time.After(5 * time.Millisecond): // ps is all there is to ask
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// removeOne removes a VM, unless it is the last.
func (f *family) removeOne(ctx context.Context, w *witness) error {
	if len(f.vms) < 2 {
		return nil
	}
	return f.remove(ctx, w)
}

func (f *family) remove(ctx context.Context, w *witness) error {
	f.begins(pending{what: "rm", vm: w.id, target: -1, pin: -1, remove: true})
	if err := f.api().Remove(ctx, host.RemoveRequest{ID: w.id, Force: true}); err != nil {
		return f.failed("rm %s: %w", w.id, err)
	}
	delete(f.vms, w.id)
	f.ended()
	return nil
}

func (f *family) pin(ctx context.Context, w *witness) error {
	n := f.pickAt(w)
	pinned := f.rng.IntN(2) == 0
	f.begins(pending{what: "pin", vm: w.id, target: -1, pin: n})
	if _, err := f.api().Pin(ctx, w.id, n, pinned); err != nil {
		return f.failed("pin %s %d: %w", w.id, n, err)
	}
	w.pinned[n] = pinned
	f.ended()
	return nil
}

// removeCheckpoint takes one out of the middle. That it is the head, pinned or a fork point is a reason to refuse.
func (f *family) removeCheckpoint(ctx context.Context, w *witness) error {
	n := f.pickAt(w)
	f.begins(pending{what: "rm of a checkpoint", vm: w.id, target: -1, pin: -1, thin: true})
	err := f.api().RemoveCheckpoint(ctx, w.id, n)
	var e *host.Error
	switch {
	case errors.As(err, &e) && e.Code == host.CodeVMPinned:
	case err != nil:
		return f.failed("rm checkpoint %d of %s: %w", n, w.id, err)
	case n == w.head || w.pinned[n]:
		return f.failed("checkpoint %d of %s was removed, head %d, pinned %v", n, w.id, w.head, w.pinned[n])
	default:
		delete(w.at, n)
	}
	f.ended()
	return nil
}

// collect thins the family's histories and frees what nothing reaches, beside whatever the others do.
func (f *family) collect(ctx context.Context, w *witness) error {
	f.begins(pending{what: "gc", vm: w.id, target: -1, pin: -1, thin: true})
	r := host.GCRequest{Apply: true, Retention: &store.Retention{KeepLast: 4 + f.rng.IntN(8)}}
	f.eachVM(func(w *witness) error { r.VMs = append(r.VMs, w.id); return nil })
	report, err := f.api().GC(ctx, r)
	if err != nil {
		return f.failed("gc: %w", err)
	}
	for _, gone := range report.Removed {
		w := f.vms[gone.VM]
		if w == nil {
			return f.failed("gc has thinned %s, which it wasn't asked to", gone.VM)
		}
		if w.pinned[gone.Number] || gone.Number == w.head {
			return f.failed("gc has removed checkpoint %d of %s, head %d, pinned %v", gone.Number, w.id, w.head, w.pinned[gone.Number])
		}
		delete(w.at, gone.Number)
	}
	f.ended()
	return f.eachVM(func(w *witness) error {
		_, err := f.compareHistory(ctx, w, &pending{target: -1, pin: -1})
		return err
	})
}
