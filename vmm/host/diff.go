package host

import (
	"context"

	"flash/store"
)

// Diff compares two checkpoints of one VM.
func (h *Host) Diff(ctx context.Context, r DiffRequest) (Diff, error) {
	if _, err := h.find(r.ID); err != nil {
		return Diff{}, err
	}
	if r.To == nil {
		history, err := h.History(ctx, r.ID)
		if err != nil {
			return Diff{}, err
		}
		if len(history) == 0 {
			return Diff{}, Errorf(CodeCheckpointNotFound, "flash checkpoint "+r.ID+" takes one", "%s has no checkpoint yet", r.ID)
		}
		r.To = &history[len(history)-1].Number
	}
	_, from, err := h.checkpointOf(ctx, r.ID, r.From)
	if err != nil {
		return Diff{}, err
	}
	_, to, err := h.checkpointOf(ctx, r.ID, *r.To)
	if err != nil {
		return Diff{}, err
	}
	out := Diff{From: r.From, To: *r.To, Files: []FileChange{}}
	if out.MemoryPages, err = h.countDiff(ctx, from, to, "mem"); err != nil {
		return Diff{}, h.explain(err, r.ID)
	}
	if out.DiskBlocks, err = h.countDiff(ctx, from, to, "disk0"); err != nil {
		return Diff{}, h.explain(err, r.ID)
	}
	return out, nil
}

// countDiff counts the slots in which an image differs between two snapshots.
func (h *Host) countDiff(ctx context.Context, from, to *store.Snapshot, name string) (int, error) {
	before, err := from.Image(ctx, name)
	if err != nil {
		return 0, err
	}
	after, err := to.Image(ctx, name)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, err := range after.Diff(ctx, before) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
