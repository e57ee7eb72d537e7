package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Restart policies of a VM.
const (
	RestartNo     = "no"     // it stays as it ended until somebody starts it
	RestartAlways = "always" // the daemon brings it back from its head whenever it didn't end by its user's or its guest's will
)

func checkRestart(policy string) error {
	switch policy {
	case RestartNo, RestartAlways:
		return nil
	}
	return Errorf(CodeInvalid, "choose no or always", "%q is not a policy for restarts", policy)
}

// Backoff is how long a VM waits before it is brought back. The zero value has the defaults.
//
// The first return is at once. Each further one waits twice as long as the one before, from First up to Most, until a guest
// has lived for Calm.
type Backoff struct {
	First, Most, Calm time.Duration // 0: 1 s, 1 min, 5 min
}

func (b Backoff) orDefaults() Backoff {
	for _, one := range []struct {
		d        *time.Duration
		standard time.Duration
	}{{&b.First, time.Second}, {&b.Most, time.Minute}, {&b.Calm, 5 * time.Minute}} {
		if *one.d == 0 {
			*one.d = one.standard
		}
	}
	return b
}

// wait is for the nth return in a row, counted from 0.
func (b Backoff) wait(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d := b.First
	for ; n > 1 && d < b.Most; n-- {
		d *= 2
	}
	return min(d, b.Most)
}

// returnsAtOnce bounds the guests that are brought back side by side: after a crash of the daemon it may be all of them.
const returnsAtOnce = 2

// keeper brings VMs back. A VM has one goroutine while it is away and wants back (vm.keeping), which ends when that is so no
// longer, whoever has seen to it.
type keeper struct {
	backoff Backoff
	ctx     context.Context
	end     context.CancelFunc
	turns   chan struct{} // capacity returnsAtOnce
	running sync.WaitGroup
}

func newKeeper(b Backoff) *keeper {
	k := &keeper{backoff: b.orDefaults(), turns: make(chan struct{}, returnsAtOnce)}
	k.ctx, k.end = context.WithCancel(context.Background())
	return k
}

// wantsBack says whether the VM is away against everybody's will. v.mu is held.
func (v *vm) wantsBack() bool {
	return v.restart == RestartAlways && v.guest == nil && !v.removed && (v.state.State == StateCrashed || v.state.Kept)
}

// keep sees to it that a VM that wants back comes back.
func (h *Host) keep(v *vm) {
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.keeper.running.Add(1) // Close, which waits, has not begun
	}
	h.mu.Unlock()
	if closed {
		return
	}
	v.mu.Lock()
	needed := v.wantsBack() && !v.keeping
	if needed {
		v.keeping = true
	}
	v.mu.Unlock()
	if !needed {
		h.keeper.running.Done()
		return
	}
	go func() {
		defer h.keeper.running.Done()
		h.bringBack(v)
	}()
}

func (h *Host) bringBack(v *vm) {
	k := h.keeper
	for {
		v.mu.Lock()
		if k.ctx.Err() != nil || !v.wantsBack() {
			v.keeping = false
			v.mu.Unlock()
			return
		}
		if !v.cameUp.IsZero() && h.now().Sub(v.cameUp) > k.backoff.Calm {
			v.returns = 0
		}
		v.cameUp = time.Time{}
		wait := k.backoff.wait(v.returns)
		v.returns++
		v.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.ctx.Done():
			timer.Stop()
			continue
		}
		select {
		case k.turns <- struct{}{}:
		case <-k.ctx.Done():
			continue
		}
		err := h.comeBack(k.ctx, v)
		<-k.turns
		if err != nil && k.ctx.Err() == nil {
			h.log.Error("VM not brought back", "vm", v.id, "cause", err)
		}
	}
}

// notBack begins what is added to a state's reason when a return failed.
const notBack = "; not brought back: "

// comeBack brings a VM back once, unless it no longer wants back, and enters in its ledger what was lost.
func (h *Host) comeBack(ctx context.Context, v *vm) error {
	unlock, err := h.lock(ctx, v, "bring back")
	if err != nil {
		return err
	}
	defer unlock()
	v.mu.Lock()
	was, wanted := v.state, v.wantsBack()
	v.mu.Unlock()
	if !wanted {
		return nil
	}
	was.Reason, _, _ = strings.Cut(was.Reason, notBack)
	lost, err := h.lostSince(ctx, v, was)
	if err == nil {
		_, err = h.bringUp(ctx, v)
	}
	if err != nil {
		if ctx.Err() == nil {
			failed := was
			failed.Reason += notBack + oneLine(err.Error())
			h.setState(v, failed)
		}
		return err
	}
	entry := map[string]any{"policy": RestartAlways, "because": was.Reason, "lost": lost}
	if err := h.store.AppendLedger(context.WithoutCancel(ctx), v.id, "restart", entry); err != nil {
		h.log.Error("return not entered in the ledger", "vm", v.id, "cause", err)
	}
	h.log.Info("VM brought back", "vm", v.id, "because", was.Reason, "lost", lost)
	return nil
}

// lostSince says what a VM that ended so doesn't have any more when it is back.
func (h *Host) lostSince(ctx context.Context, v *vm, was status) (string, error) {
	if was.Saved {
		return "nothing", nil
	}
	record, err := h.store.VM(ctx, v.id)
	if err != nil {
		return "", h.explain(err, v.id)
	}
	if record.Head < 0 {
		return "everything: it had no checkpoint and was booted anew from its bundle", nil
	}
	entry, err := h.store.Checkpoint(ctx, v.id, record.Head)
	if err != nil {
		return "", h.explain(err, v.id)
	}
	return fmt.Sprintf("what it did after checkpoint %d of %s; nothing up to it", entry.Number, entry.Created.UTC().Format(time.RFC3339)), nil
}

// UpdateRequest changes what of a VM can be changed while it is there.
type UpdateRequest struct {
	ID      string `json:"id"`
	Restart string `json:"restart"` // no always
}

// Update changes a VM's policy for restarts. One that is away and wants back by the new policy is brought back.
func (h *Host) Update(ctx context.Context, r UpdateRequest) (VM, error) {
	if err := checkRestart(r.Restart); err != nil {
		return VM{}, err
	}
	v, err := h.find(r.ID)
	if err != nil {
		return VM{}, err
	}
	unlock, err := h.lock(ctx, v, "update")
	if err != nil {
		return VM{}, err
	}
	defer unlock()
	b, err := json.Marshal(spec{v.hw, r.Restart})
	if err == nil {
		err = h.store.SetVMSpec(ctx, v.id, b)
	}
	if err != nil {
		return VM{}, h.explain(fmt.Errorf("update %s: %w", v.id, err), v.id)
	}
	v.mu.Lock()
	v.restart = r.Restart
	v.returns = 0
	v.mu.Unlock()
	h.keep(v)
	return h.view(ctx, v)
}
