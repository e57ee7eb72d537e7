package blockdelta

import (
	"context"
	"fmt"
	"iter"
)

// Delta is the blocks changed at one cut. It satisfies store.Changes.
//
//	open ──Commit──▶ ended    the base has them
//	  └───Rollback─▶ ended    the top has them
type Delta struct {
	overlay *Overlay
	layer   *layer // never changes
	ended   bool   // guarded by overlay.mu
}

// Slots yields the changed blocks in ascending order.
func (d *Delta) Slots() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for block := range d.layer.blocks() {
			if !yield(block) {
				return
			}
		}
	}
}

// Len is the number of changed blocks.
func (d *Delta) Len() int { return d.layer.count }

// IsZero tells without reading whether a changed block is known to be zero.
func (d *Delta) IsZero(slot uint64) bool { return d.layer.get(slot) == zero }

// ReadSlot fills dst, BlockBytes long. It may be called from many goroutines, while the guest writes on.
func (d *Delta) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if len(dst) != BlockBytes {
		return fmt.Errorf("read block %d of a delta: the buffer has %d bytes, not %d", slot, len(dst), BlockBytes)
	}
	o := d.overlay
	e, err := o.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("read block %d of a delta: %w", slot, err)
	}
	defer o.end(e, false)
	// Asked before and after: a slot may be overwritten or reused from the moment the delta ends.
	if d.hasEnded() {
		return fmt.Errorf("read block %d of a delta: %w", slot, ErrEnded)
	}
	switch p := d.layer.get(slot); {
	case p == absent:
		return fmt.Errorf("read block %d of a delta: it is not among the %d that changed", slot, d.Len())
	case p == zero:
		clear(dst)
	default:
		if err := o.scratch.readAt(dst, p.offset()); err != nil {
			return fmt.Errorf("read block %d of a delta: %w", slot, err)
		}
	}
	if d.hasEnded() {
		return fmt.Errorf("read block %d of a delta: %w", slot, ErrEnded)
	}
	return nil
}

func (d *Delta) hasEnded() bool {
	d.overlay.mu.Lock()
	defer d.overlay.mu.Unlock()
	return d.ended
}

// end tells whether this is the call that ends the delta.
func (d *Delta) end() bool {
	d.overlay.mu.Lock()
	defer d.overlay.mu.Unlock()
	was := d.ended
	d.ended = true
	return !was
}

// Commit says that newBase holds these blocks: they are read from there from now on and their scratch space is freed.
// A no-op when the delta has ended.
// Precondition: newBase equals the old base with the delta's blocks replaced; its Slots are as many.
func (d *Delta) Commit(newBase Base) {
	o := d.overlay
	if newBase.Slots() != o.blocks {
		panic(fmt.Sprintf("blockdelta: commit: the new base has %d blocks, the disk %d", newBase.Slots(), o.blocks))
	}
	if !d.end() {
		return
	}
	freed := d.layer.slots()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.frozen = newBase, nil
	o.retire(freed)
}

// Rollback puts the blocks back under what was written since: the next Cut reports them too.
// A no-op when the delta has ended.
func (d *Delta) Rollback() {
	if !d.end() {
		return
	}
	// Leaf by leaf, so that guest requests come in between. At any moment a block is in the top, or still in frozen
	// below it, so reads find it; and each slot of frozen is visited once, so it is moved or retired once.
	o := d.overlay
	for index, older := range d.layer.leaves {
		o.mu.Lock()
		o.retire(o.top.mergeUnder(index, older, nil))
		o.mu.Unlock()
	}
	o.mu.Lock()
	o.frozen = nil
	o.mu.Unlock()
}
