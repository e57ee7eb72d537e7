package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
	"flash/vmm/guest"
)

// cut is one instant of a guest: what changed in memory and on its disks since the last one, and its device state.
// It ends in exactly one of commit and rollback (I5).
type cut struct {
	mem    *memtrack.Delta
	disks  []*blockdelta.Delta
	state  vmm.State
	pause  time.Duration                   // CPUs stopped
	freeze time.Duration                   // workload frozen
	resume func(ctx context.Context) error // ends the pause; nil once it has
	leave  func()                          // gives its place among the open cuts back; again is harmless
}

// cutsAtOnce bounds the cuts that are open at one time, over all VMs. A cut holds the changed pages until they are stored:
// 64 MiB each at least, so that the pause pays for nothing but the copy. More VMs than that would not be stored sooner by
// cutting them all; they wait for a place while their guests run, and the daemon's memory doesn't grow with their number.
const cutsAtOnce = 4

// enterCut waits for a place among the open cuts, and gives what gives it back.
func (h *Host) enterCut(ctx context.Context, g *guestVM) (leave func(), err error) {
	select {
	case h.cuts <- struct{}{}:
		return sync.OnceFunc(func() { <-h.cuts }), nil
	case <-ctx.Done():
		return nil, Errorf(CodeVMBusy, "try again when they are done", "checkpoint %s: it waited for its turn behind checkpoints of other VMs: %w", g.id, ctx.Err())
	}
}

// takeCut takes the instant and lets the guest go on, unless hold: then c.resume does.
//
// This is the pause window, here and nowhere else: no hashing, no compression, no tier I/O; one copy of the dirty
// pages (I8). The workload is frozen before and thawed after, so that a guest restored from this instant can be put
// right before any of the workload runs.
// Preconditions: the caller holds the VM's op lock; no cut of this guest is open.
func (h *Host) takeCut(ctx context.Context, g *guestVM, hold bool) (*cut, error) {
	leave, err := h.enterCut(ctx, g)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := h.tryCut(ctx, g, hold)
		if err == nil {
			c.leave = leave
			return c, nil
		}
		// A device may still have written after the scan; nothing is lost, the instant is merely taken again.
		if attempt == 3 || !errors.Is(err, vmm.ErrUnsettled) {
			leave()
			return nil, err
		}
		h.log.Warn("cut taken again", "vm", g.id, "attempt", attempt, "cause", err)
	}
}

func (h *Host) tryCut(ctx context.Context, g *guestVM, hold bool) (_ *cut, err error) {
	frozenAt := time.Now()
	step, cancel := context.WithTimeout(ctx, h.deadlines.Control)
	defer cancel()
	step, stop := untilDone(step, g.machine)
	defer stop()
	if err := g.client.Freeze(step, h.deadlines.Freeze); err != nil {
		return nil, h.explainGuest(g, also(fmt.Errorf("freeze the workload of %s: %w", g.id, err), h.thaw(ctx, g, h.deadlines.calm())))
	}
	release, err := g.client.Quiesce(step)
	if err != nil {
		return nil, h.explainGuest(g, also(fmt.Errorf("quiet the channel to %s: %w", g.id, err), h.thaw(ctx, g, h.deadlines.calm())))
	}
	c := &cut{}
	var pausedAt time.Time
	c.resume = func(ctx context.Context) error {
		c.resume = nil
		err := h.resume(ctx, g)
		c.pause = time.Since(pausedAt)
		release()
		if err == nil {
			err = h.thaw(ctx, g, h.deadlines.Control)
		}
		c.freeze = time.Since(frozenAt)
		return err
	}
	defer func() {
		if err != nil {
			c.rollback()
			if c.resume != nil {
				err = also(err, c.resume(ctx))
			}
			err = h.explainGuest(g, fmt.Errorf("checkpoint %s: %w", g.id, err))
		}
	}()

	engine, cancelEngine := context.WithTimeout(ctx, h.deadlines.Engine)
	defer cancelEngine()
	pausedAt = time.Now()
	if err = g.machine.Pause(engine); err != nil {
		return nil, err
	}
	if err = c.take(engine, g); err != nil {
		return nil, err
	}
	if !hold {
		if err = c.resume(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// take fills the cut of a paused machine. Memory is copied while the engine saves its state: both take some
// milliseconds of the guest's time, and are done by different processes. That nothing was written between the cut and
// the state's end, a second scan proves, which must be empty.
func (c *cut) take(ctx context.Context, g *guestVM) (err error) {
	var both errgroup.Group
	both.Go(func() (err error) { c.state, err = g.machine.SaveState(ctx); return err })
	both.Go(func() (err error) { c.mem, err = g.machine.Tracker().Cut(ctx); return err })
	if err := both.Wait(); err != nil {
		return err
	}
	for _, d := range g.disks {
		delta, err := d.Overlay.Cut(ctx)
		if err != nil {
			return err
		}
		c.disks = append(c.disks, delta)
	}
	late, err := g.machine.Tracker().Pending(ctx)
	if err != nil {
		return err
	}
	if late != 0 {
		return fmt.Errorf("%w: %d pages (was the agent's channel read or written during the pause?)", vmm.ErrUnsettled, late)
	}
	return nil
}

// resume ends a pause, whatever ctx says. A machine that can't go on is ended: a crashed VM can be started, one that
// stands still for ever is of use to nobody.
func (h *Host) resume(ctx context.Context, g *guestVM) (err error) {
	for range 2 {
		step, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.deadlines.Engine)
		err = g.machine.Resume(step)
		cancel()
		if err == nil || g.ended() {
			return err
		}
		h.log.Warn("guest not resumed", "vm", g.id, "cause", err)
	}
	g.lose(fmt.Sprintf("it couldn't be resumed after a pause: %v", err))
	return err
}

// thaw lets the workload go on with the clock put right: while the CPUs stood still, so did it. A workload that stays
// frozen all the same is thawed by the next exec, or by the agent itself when its limit is over.
func (h *Host) thaw(ctx context.Context, g *guestVM, deadline time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	ctx, stop := untilDone(ctx, g.machine)
	defer stop()
	for range 2 {
		if err = g.client.Repair(ctx, guest.Repair{Now: h.now(), Thaw: true}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("thaw the workload of %s: %w", g.id, err)
}

// rollback makes the next cut report everything of this one again.
func (c *cut) rollback() {
	if c.mem != nil {
		c.mem.Rollback()
	}
	for _, d := range c.disks {
		d.Rollback()
	}
	if c.leave != nil {
		c.leave()
	}
}

// commit forgets: all of it is in the store, and bases are its disks there.
func (c *cut) commit(bases []blockdelta.Base) {
	c.mem.Commit()
	for i, d := range c.disks {
		d.Commit(bases[i])
	}
	c.leave()
}
