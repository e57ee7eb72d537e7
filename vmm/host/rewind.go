package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"flash/store"
	"flash/vmm"
)

// connectionsNotice is what every caller that goes back in time must know.
const connectionsNotice = "connections to the outside that were open at the checkpoint are dead, and effects outside the VM are not undone"

// Rewind takes a VM back to a checkpoint under its own name. The present is checkpointed first.
func (h *Host) Rewind(ctx context.Context, r RewindRequest) (RewindResult, error) {
	return once(ctx, h.answers, "rewind "+r.ID, r.RequestID, func() (RewindResult, error) { return h.rewind(ctx, r) })
}

func (h *Host) rewind(ctx context.Context, r RewindRequest) (RewindResult, error) {
	v, err := h.find(r.ID)
	if err != nil {
		return RewindResult{}, err
	}
	unlock, err := h.lock(ctx, v, "rewind")
	if err != nil {
		return RewindResult{}, err
	}
	defer unlock()
	entry, snap, err := h.target(ctx, v.id, r.Checkpoint)
	if err != nil {
		return RewindResult{}, err
	}
	out := RewindResult{}
	notice := connectionsNotice
	if old := h.running(v); old != nil {
		var lost []string
		if out.Saved, lost, err = h.swap(ctx, v, old, entry, snap); err != nil {
			return RewindResult{}, err
		}
		notice = strings.Join(append(lost, notice), "; ")
	} else if err := h.wake(ctx, v, entry, snap, "rewind"); err != nil { // its present is its head, in the store already
		return RewindResult{}, err
	}
	out.VM, err = h.view(ctx, v)
	out.VM.Notice = notice
	return out, err
}

// checkpointOf finds a checkpoint and opens it.
func (h *Host) checkpointOf(ctx context.Context, id string, number int) (store.Checkpoint, *store.Snapshot, error) {
	entry, err := h.store.Checkpoint(ctx, id, number)
	if errors.Is(err, store.ErrNotFound) {
		return entry, nil, noCheckpoint(id, number)
	}
	if err != nil {
		return entry, nil, h.explain(err, id)
	}
	snap, err := h.store.Snapshot(ctx, entry.Snapshot)
	if err != nil {
		return entry, nil, h.explain(fmt.Errorf("checkpoint %d of %s: %w", number, id, err), id)
	}
	return entry, snap, nil
}

func noCheckpoint(id string, number int) error {
	return Errorf(CodeCheckpointNotFound, fmt.Sprintf("flash history %s lists the checkpoints there are", id), "%s has no checkpoint %d", id, number)
}

// target finds a checkpoint and makes sure, before anything is stopped, that this host can restore it.
func (h *Host) target(ctx context.Context, id string, number int) (store.Checkpoint, *store.Snapshot, error) {
	entry, snap, err := h.checkpointOf(ctx, id, number)
	if err != nil {
		return entry, nil, err
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

// swap replaces a running guest by one restored from a checkpoint. The new one comes up while the present is cut and saved.
// The old one stands paused until the new one has answered and is repaired, so whatever fails, the VM goes on as it was.
// lost says which ports the new guest didn't get.
func (h *Host) swap(ctx context.Context, v *vm, old *guestVM, entry store.Checkpoint, snap *store.Snapshot) (saved *Checkpoint, lost []string, err error) {
	began := time.Now()
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
	c, err := h.takeCut(ctx, old, true)
	if err != nil {
		if next := <-coming; next.guest != nil {
			h.abandon(next.guest)
		}
		return nil, nil, err
	}
	cutAt := time.Now()
	// The present is the head until the new guest is: a daemon that is killed meanwhile comes back to it.
	present, _, err := h.save(ctx, v, old, c, store.Reserve, store.Move{VM: v.id, ExpectHead: old.head, Label: fmt.Sprintf("before rewind to %d", entry.Number)})
	savedAt := time.Now()
	next := <-coming
	h.log.Debug("guest swapped", "vm", v.id, "cut", cutAt.Sub(began), "save", savedAt.Sub(cutAt), "restore", time.Since(began))
	back := func(err error) error {
		if next.guest != nil {
			h.abandon(next.guest)
		}
		if present != nil {
			h.rebase(ctx, old, c, present)
		} else {
			c.rollback()
		}
		return also(err, c.resume(ctx))
	}
	if err != nil || next.err != nil {
		return nil, nil, back(also(err, next.err))
	}
	next.guest.ports = old.ports
	if err := h.store.MoveHead(ctx, v.id, entry.Number, "rewind"); err != nil {
		return nil, nil, back(h.explain(err, v.id))
	}
	// From here on it has happened.
	old.closing.Store(true)
	c.rollback() // what was cut is in the store, and the old guest takes no other cut
	if err := h.adopt(v, next.guest); err != nil {
		h.letGo(v, old, status{State: StateStopped, Reason: reasonDaemon, Kept: true})
		return nil, nil, err
	}
	if len(next.guest.ports) == 0 {
		h.abandonSoon(old)
	} else {
		h.abandon(old) // it holds the host's ports
	}
	for _, p := range next.guest.ports {
		if err := h.publish(ctx, next.guest, p); err != nil {
			h.log.Warn("port not published again", "vm", v.id, "host", p.Host, "guest", p.Guest, "cause", err)
			lost = append(lost, oneLine(fmt.Sprintf("its port %d:%d isn't published again: %v", p.Host, p.Guest, err)))
		}
	}
	out := shown(*present, entry.Number)
	return &out, lost, nil
}

// publish publishes a port of a guest that runs, at the second try if need be.
func (h *Host) publish(ctx context.Context, g *guestVM, p vmm.Port) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.deadlines.Control)
	defer cancel()
	for range 2 {
		if _, err = g.machine.AddPort(ctx, p); err == nil {
			return nil
		}
	}
	return err
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
	return h.adopt(v, g)
}
