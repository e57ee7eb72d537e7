package bench

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// family is some VMs that descend from one, and the worker that alone acts on them. It knows what each must remember.
type family struct {
	s       *soak
	name    string
	max     int // VMs at once
	rng     *rand.Rand
	vms     map[string]*witness
	made    int      // names and tokens given
	life    int      // the one it was last made good in
	pending *pending // what was under way when a life or a machine ended; nil: all is known
	steps   []string // the last ones
}

// witness is what is known of one VM, its guest now and its guest at each checkpoint.
type witness struct {
	id     string
	now    memory
	at     map[int]memory
	pinned map[int]bool
	head   int
}

// pending is an operation of which it isn't known how much was done.
type pending struct {
	what   string
	vm     string
	token  string   // it may have been given
	target int      // the head may be this; -1: no
	forks  []string // these may have come to be, from target
	pin    int      // its pin may have changed; -1: none
	remove bool     // the VM may be gone
	thin   bool     // checkpoints of the family that nothing holds may be gone
}

func newFamily(s *soak, i, most int) *family {
	return &family{s: s, name: fmt.Sprintf("soak%d", i), max: max(1, most), rng: rand.New(rand.NewPCG(s.Seed, uint64(i+1))), vms: map[string]*witness{}, life: 1}
}

// begin makes the first VM, its process, and a checkpoint to come back to.
func (f *family) begin(ctx context.Context) error {
	id := f.name + "-1"
	if _, err := f.api().Create(ctx, host.CreateRequest{ID: id, Bundle: f.s.Bundle, VCPUs: 1, MemMiB: f.s.MemMiB, Checkpoints: true}); err != nil {
		return f.failed("create %s: %w", id, err)
	}
	f.made++
	w := &witness{id: id, at: map[int]memory{}, pinned: map[int]bool{}, head: -1}
	if _, err := f.sh(ctx, w, f.s.Guest.Begin, false); err != nil {
		return err
	}
	f.vms[id] = w
	if err := f.look(ctx, w, w.now); err != nil {
		return err
	}
	return f.checkpoint(ctx, w)
}

func (f *family) api() host.API { return f.s.life.api }

// failed is a failure with what led to it.
func (f *family) failed(format string, args ...any) error {
	return failed("%w (seed %d, %s after: %s)", fmt.Errorf(format, args...), f.s.Seed, f.name, strings.Join(f.steps, "; "))
}

func (f *family) note(format string, args ...any) {
	f.steps = append(f.steps, fmt.Sprintf(format, args...))
	if len(f.steps) > lastSteps {
		f.steps = slices.Clone(f.steps[len(f.steps)-lastSteps:])
	}
}

// work takes turns until time is up. A turn that a kill cut short is made good in the next life.
func (f *family) work(ctx context.Context, until time.Time) error {
	for time.Now().Before(until) && ctx.Err() == nil {
		if err := f.turn(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *family) turn(ctx context.Context) error {
	f.s.gate.RLock()
	defer f.s.gate.RUnlock()
	l := f.s.life
	ctx, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	err := f.ready(ctx, l)
	if err == nil {
		if err = f.any(ctx); err != nil && l.killed.Load() {
			if f.pending == nil {
				f.pending = &pending{what: "nothing", target: -1, pin: -1}
			}
			f.s.count(f.s.report.Cut, f.pending.what)
			f.note("all was killed in %s: %.160v", f.pending.what, err)
		}
	}
	if err == nil || !l.killed.Load() {
		return err
	}
	f.life = 0
	select {
	case <-time.After(10 * time.Millisecond): // until the gate is shut
	case <-ctx.Done():
	}
	return nil
}

// ready makes the family good if what is known of it is of an earlier life, or if an operation was cut short.
func (f *family) ready(ctx context.Context, l *life) error {
	if f.life == l.number && f.pending == nil {
		return nil
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	f.life, f.pending = l.number, nil
	return nil
}

// begins notes what is about to be done, so that it can be made good if it is cut short.
func (f *family) begins(p pending) {
	f.pending = &p
	f.note("%s %s", p.what, p.vm)
}

// ended says that the operation under way did all it should.
func (f *family) ended() {
	what := f.pending.what
	f.pending = nil
	f.s.did(what)
}

// pick gives a random VM, or checkpoint, by order of name: the seed decides, not the map.
func (f *family) pick() *witness {
	ids := slices.Sorted(maps.Keys(f.vms))
	return f.vms[ids[f.rng.IntN(len(ids))]]
}

func (f *family) pickAt(w *witness) int {
	all := slices.Sorted(maps.Keys(w.at))
	return all[f.rng.IntN(len(all))]
}

func (f *family) eachVM(do func(*witness) error) error {
	for _, id := range slices.Sorted(maps.Keys(f.vms)) {
		if err := do(f.vms[id]); err != nil {
			return err
		}
	}
	return nil
}

// commandLimit bounds one command in a guest; emulated and in a crowd they are slow.
const commandLimit = 2 * time.Minute

// sh runs a script in a guest, with its checkpoint or without.
func (f *family) sh(ctx context.Context, w *witness, script string, checkpoint bool) (out string, err error) {
	var stdout, stderr strings.Builder
	r, err := f.api().Exec(ctx, host.ExecRequest{ID: w.id, Checkpoint: &checkpoint,
		Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}, Timeout: commandLimit}}, guest.Streams{Stdout: &stdout, Stderr: &stderr})
	if r.Checkpoint != nil { // it is one, whatever became of the command
		w.at[r.Checkpoint.Number] = w.now
		w.head = r.Checkpoint.Number
	}
	switch {
	case err != nil:
		return "", f.failed("exec in %s: %w", w.id, err)
	case r.Code != 0 || r.TimedOut:
		return "", f.failed("exec in %s: exit code %d, timed out %v: %.300s", w.id, r.Code, r.TimedOut, stderr.String())
	case checkpoint && r.Checkpoint == nil:
		return "", f.failed("exec in %s came without its checkpoint", w.id)
	}
	return stdout.String(), nil
}

// look compares a guest with what it may remember, any of some.
func (f *family) look(ctx context.Context, w *witness, may ...memory) error {
	out, err := f.sh(ctx, w, f.s.Guest.Look, false)
	if err != nil {
		return err
	}
	return f.compare(w, out, may...)
}

func (f *family) compare(w *witness, out string, may ...memory) error {
	seen, err := parseLook(out)
	if err != nil {
		return f.failed("%s: %w", w.id, err)
	}
	f.s.mu.Lock()
	f.s.report.Looks++
	f.s.mu.Unlock()
	var why []string
	for _, m := range may {
		no := seen.recalls(m)
		if no == "" {
			w.now = seen
			return nil
		}
		why = append(why, no)
	}
	return f.failed("%s, whose head is %d, isn't what it was: %s", w.id, w.head, strings.Join(why, "; nor could it be the other: "))
}
