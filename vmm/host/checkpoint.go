package host

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"flash/blockdelta"
	"flash/store"
	"flash/vmm/guest"
)

// maxLabelBytes bounds a label; a longer one is cut with an ellipsis.
const maxLabelBytes = 512

// Checkpoint takes one now.
func (h *Host) Checkpoint(ctx context.Context, r CheckpointRequest) (Checkpoint, error) {
	return once(ctx, h.answers, "checkpoint "+r.ID, r.RequestID, func() (Checkpoint, error) {
		v, err := h.find(r.ID)
		if err != nil {
			return Checkpoint{}, err
		}
		unlock, err := h.lock(ctx, v, "checkpoint")
		if err != nil {
			return Checkpoint{}, err
		}
		defer unlock()
		return h.checkpoint(ctx, v, r.Label, r.Pin)
	})
}

// checkpoint takes a cut and commits it. Precondition: the caller holds the VM.
func (h *Host) checkpoint(ctx context.Context, v *vm, label string, pin bool) (Checkpoint, error) {
	g, err := h.need(v, "checkpoint")
	if err != nil {
		return Checkpoint{}, err
	}
	if err := h.store.CheckBudget(store.Ordinary); err != nil { // before the guest is paused for nothing
		h.wantGC()
		return Checkpoint{}, h.explain(fmt.Errorf("checkpoint %s: %w", v.id, err), v.id)
	}
	c, err := h.takeCut(ctx, g, false)
	if err != nil {
		return Checkpoint{}, err
	}
	entry, timing, err := h.save(ctx, v, g, c, store.Ordinary, store.Move{VM: v.id, ExpectHead: g.head, Label: clip(label), Pinned: pin})
	if err != nil {
		c.rollback()
		return Checkpoint{}, err
	}
	h.rebase(ctx, g, c, entry)
	h.rememberWorkingSet(ctx, g)
	out := shown(*entry, entry.Number)
	out.Timing = &timing
	return out, nil
}

// save makes a cut durable and visible. It leaves the cut open: its caller ends it.
func (h *Host) save(ctx context.Context, v *vm, g *guestVM, c *cut, purse store.Purse, mv store.Move) (*store.Checkpoint, Timing, error) {
	began := time.Now()
	timing := Timing{Pages: c.mem.Len()}
	defer h.collectIfPressed()
	fail := func(err error) (*store.Checkpoint, Timing, error) {
		return nil, timing, h.explain(fmt.Errorf("checkpoint %s: %w", v.id, err), v.id)
	}
	txn, err := h.store.Begin(ctx, g.base)
	if err != nil {
		return fail(err)
	}
	defer txn.Abort()
	txn.MayUse(purse)
	// Disk before memory: most changed pages of a guest are its page cache, equal to blocks just stored.
	for i, d := range g.disks {
		stats, err := txn.PutImage(ctx, store.ImageSpec{Name: d.Name, Bytes: d.Overlay.Bytes()}, c.disks[i])
		if err != nil {
			return fail(err)
		}
		timing.Blocks += c.disks[i].Len()
		timing.NewChunks += stats.NewChunks
	}
	stats, err := txn.PutImage(ctx, store.ImageSpec{Name: "mem", Bytes: v.hw.memBytes()}, c.mem)
	if err != nil {
		return fail(err)
	}
	timing.NewChunks += stats.NewChunks
	stats, err = txn.PutBytes(ctx, "state", c.state.Data)
	if err != nil {
		return fail(err)
	}
	timing.NewChunks += stats.NewChunks
	if err := txn.Keep("kernel", "initrd"); err != nil {
		return fail(err)
	}
	f := c.state.Facts
	meta := store.Meta{Kind: kindCheckpoint, Created: h.now().UTC(), Facts: map[string]string{
		factEngine: f.Engine, factVersion: f.Version, factMachine: f.MachineType, factCPU: f.CPU, factAccel: f.Accel, factLayout: f.Layout,
		factBundle: v.hw.Bundle, factVM: v.id, factVCPUs: strconv.Itoa(v.hw.VCPUs),
		factGeneration: strconv.FormatUint(g.gen, 10), factProtocol: strconv.Itoa(guest.Protocol),
	}}
	entry, err := txn.Commit(ctx, meta, mv)
	if err != nil {
		return fail(err)
	}
	h.rang()
	timing.PauseMicros, timing.FreezeMicros = c.pause.Microseconds(), c.freeze.Microseconds()
	timing.StoreMicros = time.Since(began).Microseconds()
	return entry, timing, nil
}

// rebase puts a guest on top of its own new checkpoint, which is its head from now on.
func (h *Host) rebase(ctx context.Context, g *guestVM, c *cut, entry *store.Checkpoint) {
	g.head = entry.Number
	snap, bases, err := h.bases(context.WithoutCancel(ctx), entry.Snapshot, g)
	if err != nil {
		// The checkpoint stands. The guest merely keeps its old base, and the next cut reports all of this one again.
		c.rollback()
		h.log.Warn("the guest keeps its old base", "vm", g.id, "checkpoint", entry.Number, "cause", err)
		return
	}
	c.commit(bases)
	g.base = entry.Snapshot
	g.hold(&g.basePin, snap.Pin())
}

// bases opens the disks of a snapshot, in the order of the guest's.
func (h *Host) bases(ctx context.Context, id store.SnapshotID, g *guestVM) (*store.Snapshot, []blockdelta.Base, error) {
	snap, err := h.store.Snapshot(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	out := make([]blockdelta.Base, len(g.disks))
	for i, d := range g.disks {
		base, err := snap.Image(ctx, d.Name)
		if err != nil {
			return nil, nil, err
		}
		out[i] = diskWitness{base, d.Name, g.diskLost}
	}
	return snap, out, nil
}

// clip bounds a label.
func clip(label string) string {
	if len(label) <= maxLabelBytes {
		return label
	}
	return strings.ToValidUTF8(label[:maxLabelBytes-len("…")], "") + "…" // not half a character
}
