package host

import (
	"context"
	"fmt"

	"flash/store"
)

// Stop ends the guest. Its present is checkpointed first, unless discarded, so that Start goes on exactly there.
func (h *Host) Stop(ctx context.Context, r StopRequest) (VM, error) {
	v, err := h.find(r.ID)
	if err != nil {
		return VM{}, err
	}
	unlock, err := h.lock(ctx, v, "stop")
	if err != nil {
		return VM{}, err
	}
	defer unlock()
	if h.running(v) == nil {
		v.mu.Lock()
		s, wantsBack := v.state, v.wantsBack()
		v.mu.Unlock()
		if wantsBack { // it shall not come back, then
			h.setState(v, status{State: StateStopped, Reason: "stopped, after: " + s.Reason})
		}
		return h.view(ctx, v) // it is what was asked for
	}
	if err := h.stop(ctx, v, stopping{discard: r.Discard, status: status{Reason: "stopped"}, label: "before stop", purse: store.Reserve}); err != nil {
		return VM{}, err
	}
	return h.view(ctx, v)
}

// stopping says how a guest is stopped and why.
type stopping struct {
	discard bool   // its present
	status  status // that it has then: why, and what the next daemon shall do
	label   string
	purse   store.Purse // what its present may use
}

// stop saves the present and ends the guest; until all is written, it can still go on.
func (h *Host) stop(ctx context.Context, v *vm, how stopping) error {
	g, err := h.need(v, "stop")
	if err != nil {
		return err
	}
	goOn := func(context.Context) error { return nil }
	if !how.discard {
		c, err := h.takeCut(ctx, g, true)
		if err != nil {
			return err
		}
		goOn = c.resume
		h.rememberWorkingSet(ctx, g)
		entry, _, err := h.save(ctx, v, g, c, how.purse, store.Move{VM: v.id, ExpectHead: g.head, Label: how.label})
		if err != nil {
			c.rollback()
			return also(err, goOn(ctx))
		}
		h.rebase(ctx, g, c, entry)
	}
	if err := h.store.AppendLedger(ctx, v.id, "stop", map[string]any{"reason": how.status.Reason, "discarded": how.discard}); err != nil {
		return also(h.explain(err, v.id), goOn(ctx))
	}
	how.status.State = StateStopped
	h.letGo(v, g, how.status)
	return nil
}

// Start brings a stopped or crashed VM back: from its head, which is the newest checkpoint of the branch it was on;
// from its bundle when it has none. A VM that runs is left alone.
func (h *Host) Start(ctx context.Context, id string) (VM, error) {
	v, err := h.find(id)
	if err != nil {
		return VM{}, err
	}
	unlock, err := h.lock(ctx, v, "start")
	if err != nil {
		return VM{}, err
	}
	defer unlock()
	if h.running(v) != nil {
		return h.view(ctx, v)
	}
	if isTracking(id) {
		return VM{}, Errorf(CodeInvalid, "flash fork "+id+" makes a VM of it; flash pull "+id+" brings it here", "%s is a remote's own and doesn't run here", id)
	}
	notice, err := h.bringUp(ctx, v)
	if err != nil {
		return VM{}, err
	}
	out, err := h.view(ctx, v)
	out.Notice = notice
	return out, err
}

// bringUp starts a VM that has no guest. Precondition: the caller holds it.
func (h *Host) bringUp(ctx context.Context, v *vm) (notice string, err error) {
	record, err := h.store.VM(ctx, v.id)
	if err != nil {
		return "", h.explain(err, v.id)
	}
	if record.Head < 0 {
		if err := h.bootVM(ctx, v); err != nil {
			return "", err
		}
		return "it had no checkpoint yet and was booted anew from its bundle", nil
	}
	entry, snap, err := h.target(ctx, v.id, record.Head)
	if err != nil {
		return "", err
	}
	kind := "start"
	v.mu.Lock()
	if v.state.State == StateCrashed {
		kind = "resume"
	}
	v.mu.Unlock()
	if err := h.wake(ctx, v, entry, snap, kind); err != nil {
		return "", err
	}
	return fmt.Sprintf("it goes on from checkpoint %d; %s", entry.Number, connectionsNotice), nil
}

// Remove removes a VM with its history. What only it kept is freed by the next gc.
func (h *Host) Remove(ctx context.Context, r RemoveRequest) error {
	v, err := h.find(r.ID)
	if err != nil {
		return err
	}
	unlock, err := h.lock(ctx, v, "rm")
	if err != nil {
		return err
	}
	defer unlock()
	if !r.Force {
		if h.running(v) != nil {
			return Errorf(CodeVMRunning, fmt.Sprintf("flash stop %s first, or flash rm --force %s", v.id, v.id), "%s is running", v.id)
		}
		history, err := h.store.History(ctx, v.id)
		if err != nil {
			return h.explain(err, v.id)
		}
		for _, c := range history {
			if c.Pinned {
				return Errorf(CodeVMPinned, fmt.Sprintf("flash unpin %s %d, or flash rm --force %s", v.id, c.Number, v.id), "checkpoint %d of %s is pinned", c.Number, v.id)
			}
		}
	}
	if g := h.running(v); g != nil {
		h.rememberWorkingSet(ctx, g) // its siblings will want the same
	}
	h.discard(v, status{Reason: "being removed"})
	return h.drop(ctx, v)
}
