package host

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"flash/store"
	"flash/vmm/bundle/ext4fs"
)

// maxDiffFiles bounds what a diff lists.
const maxDiffFiles = 10_000

// notYetOnDisk is a note of every diff: a checkpoint holds such files too, but only in the guest's memory, as its kernel
// keeps them.
const notYetOnDisk = "files are as the guest's disk had them; what it had not yet written back (sync does) is missing or shows an older size"

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
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		before, after, err := imagesOf(ctx, from, to, "mem")
		if err != nil {
			return err
		}
		pages, err := slotsThatDiffer(ctx, before, after)
		out.MemoryPages = len(pages)
		return err
	})
	both.Go(func() error {
		before, after, err := imagesOf(ctx, from, to, "disk0")
		if err != nil {
			return err
		}
		blocks, err := slotsThatDiffer(ctx, before, after)
		if err != nil {
			return err
		}
		out.DiskBlocks = len(blocks)
		found, err := ext4fs.Compare(ctx, before, after, blocks, maxDiffFiles)
		return out.tell(found, err)
	})
	if err := both.Wait(); err != nil {
		return Diff{}, h.explain(err, r.ID)
	}
	return out, nil
}

// tell fills in the files. That they can't be told is no error: the guest does with its disk what it likes.
func (d *Diff) tell(found ext4fs.Result, err error) error {
	switch {
	case errors.Is(err, ext4fs.ErrCorrupt), errors.Is(err, ext4fs.ErrUnsupported), errors.Is(err, ext4fs.ErrTooLarge):
		d.Note = "which files changed can't be told: " + err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("compare the files: %w", err)
	}
	for _, c := range found.Changes {
		d.Files = append(d.Files, FileChange{Path: c.Path, Change: string(c.Kind), Bytes: c.Bytes})
	}
	d.Note = notYetOnDisk
	if found.Guessed > 0 {
		d.Note = fmt.Sprintf("%d files of unchanged size count as modified because their blocks did, without all their content having been compared; %s", found.Guessed, d.Note)
	}
	if found.More {
		d.Note = fmt.Sprintf("more than %d files changed, the rest isn't listed; %s", maxDiffFiles, d.Note)
	}
	return nil
}

// imagesOf opens an image of two snapshots.
func imagesOf(ctx context.Context, from, to *store.Snapshot, name string) (before, after *store.Image, err error) {
	if before, err = from.Image(ctx, name); err != nil {
		return nil, nil, err
	}
	after, err = to.Image(ctx, name)
	return before, after, err
}

// slotsThatDiffer gives them in ascending order.
func slotsThatDiffer(ctx context.Context, before, after *store.Image) ([]uint64, error) {
	var slots []uint64
	for slot, err := range after.Diff(ctx, before) {
		if err != nil {
			return nil, err
		}
		slots = append(slots, slot)
	}
	return slots, nil
}
