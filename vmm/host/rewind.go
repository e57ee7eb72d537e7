package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flash/store"
)

// connectionsNotice is what every caller that goes back in time must know.
const connectionsNotice = "connections to the outside that were open at the checkpoint are dead, and effects outside the VM are not undone"

// Rewind takes a VM back to a checkpoint under its own name. The present is checkpointed first.
func (h *Host) Rewind(ctx context.Context, r RewindRequest) (RewindResult, error) {
	return once(ctx, h.answers, "rewind", r.RequestID, func() (RewindResult, error) { return h.rewind(ctx, r) })
}

func (h *Host) rewind(ctx context.Context, r RewindRequest) (RewindResult, error) {
	v, err := h.find(r.ID)
	if err != nil {
		return RewindResult{}, err
	}
	unlock, err := v.lock(ctx, "rewind")
	if err != nil {
		return RewindResult{}, err
	}
	defer unlock()
	entry, snap, err := h.target(ctx, v.id, r.Checkpoint)
	if err != nil {
		return RewindResult{}, err
	}
	var saved *Checkpoint
	if old := v.running(); old != nil {
		if saved, err = h.swap(ctx, v, old, entry, snap); err != nil {
			return RewindResult{}, err
		}
	} else if err := h.wake(ctx, v, entry, snap, "rewind"); err != nil { // its present is its head, in the store already
		return RewindResult{}, err
	}
	out := RewindResult{Saved: saved}
	out.VM, err = h.view(ctx, v)
	out.VM.Notice = connectionsNotice
	return out, err
}

// target finds a checkpoint and makes sure, before anything is stopped, that this host can restore it.
func (h *Host) target(ctx context.Context, id string, number int) (store.Checkpoint, *store.Snapshot, error) {
	entry, err := h.store.Checkpoint(ctx, id, number)
	if errors.Is(err, store.ErrNotFound) {
		return entry, nil, Errorf(CodeCheckpointNotFound, fmt.Sprintf("flash history %s lists the checkpoints there are", id), "%s has no checkpoint %d", id, number)
	}
	if err != nil {
		return entry, nil, h.explain(err, id)
	}
	snap, err := h.store.Snapshot(ctx, entry.Snapshot)
	if err != nil {
		return entry, nil, h.explain(fmt.Errorf("checkpoint %d of %s: %w", number, id, err), id)
	}
	facts, err := factsOf(snap.Meta())
	if err != nil {
		return entry, nil, err
	}
	if err := h.engine.CanRestore(ctx, facts); err != nil {
		return entry, nil, Errorf(CodeIncompatible, "restore it on a host like the one it was taken on", "checkpoint %d of %s can't be restored here: %w", number, id, err)
	}
	return entry, snap, nil
}

// swap replaces a running guest by one restored from a checkpoint. The old one stands paused until the new one has
// answered and is repaired, so whatever fails, the VM goes on as it was; its present is saved meanwhile.
func (h *Host) swap(ctx context.Context, v *vm, old *guestVM, entry store.Checkpoint, snap *store.Snapshot) (*Checkpoint, error) {
	began := time.Now()
	c, err := h.takeCut(ctx, old, true)
	if err != nil {
		return nil, err
	}
	cutAt := time.Now()
	back := func(err error) error {
		c.rollback()
		return errors.Join(err, c.resume(ctx))
	}
	h.rememberWorkingSet(ctx, old)

	type restored struct {
		guest *guestVM
		err   error
	}
	coming := make(chan restored, 1)
	go func() {
		g, err := h.restore(ctx, bring{id: v.id, hw: v.hw, snap: snap, head: entry.Number})
		coming <- restored{g, err}
	}()
	present, _, err := h.save(ctx, v, old, c, store.Move{VM: v.id, ExpectHead: old.head, KeepHead: true, Label: fmt.Sprintf("before rewind to %d", entry.Number)})
	savedAt := time.Now()
	next := <-coming
	h.log.Debug("guest swapped", "vm", v.id, "cut", cutAt.Sub(began), "save", savedAt.Sub(cutAt), "restore", time.Since(cutAt))
	if err != nil || next.err != nil {
		if next.guest != nil {
			h.abandon(next.guest)
		}
		return nil, back(errors.Join(err, next.err))
	}
	if err := h.store.MoveHead(ctx, v.id, entry.Number, "rewind"); err != nil {
		h.abandon(next.guest)
		return nil, back(h.explain(err, v.id))
	}
	ports := old.machine.Ports()
	c.rollback() // the old guest ends; what was cut is in the store
	h.abandon(old)
	if err := h.adopt(ctx, v, next.guest); err != nil {
		return nil, err
	}
	for _, p := range ports {
		if _, err := next.guest.machine.AddPort(ctx, p); err != nil {
			return nil, h.explain(fmt.Errorf("%s was rewound, but its port %d:%d isn't published again: %w", v.id, p.Host, p.Guest, err), v.id)
		}
	}
	out := shown(*present, entry.Number)
	return &out, nil
}

// wake restores a VM that has no guest from a checkpoint and makes it the head.
func (h *Host) wake(ctx context.Context, v *vm, entry store.Checkpoint, snap *store.Snapshot, kind string) error {
	g, err := h.restore(ctx, bring{id: v.id, hw: v.hw, snap: snap, head: entry.Number, ports: v.hw.Ports})
	if err != nil {
		return err
	}
	if err := h.store.MoveHead(ctx, v.id, entry.Number, kind); err != nil {
		h.abandon(g)
		return h.explain(err, v.id)
	}
	return h.adopt(ctx, v, g)
}
