package blockdelta

import (
	"bytes"
	"context"
	"fmt"
)

var zeroBlock [BlockBytes]byte

func isZero(block []byte) bool { return bytes.Equal(block, zeroBlock[:len(block)]) }

// WriteAt writes p at any offset inside the disk. When it fails, any part of p may have been written, and nothing else
// has changed: a request that met a full scratch disk can be tried again.
func (o *Overlay) WriteAt(ctx context.Context, p []byte, off int64) error {
	if err := o.inRange("write", off, int64(len(p))); err != nil {
		return err
	}
	e, err := o.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("write %d bytes at offset %d: %w", len(p), off, err)
	}
	defer o.end(e, true)
	for len(p) > 0 {
		block, inner := uint64(off)/BlockBytes, off%BlockBytes
		var n int
		if inner != 0 || len(p) < BlockBytes {
			n = min(BlockBytes-int(inner), len(p))
			err = o.writePart(ctx, p[:n], block, inner)
		} else {
			n = len(p) &^ (BlockBytes - 1)
			err = o.writeWhole(p[:n], block)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// writeWhole writes whole blocks: over their own slot where the top has one, else to a new slot that is named only
// once its bytes are there.
func (o *Overlay) writeWhole(p []byte, first uint64) error {
	count := len(p) / BlockBytes
	targets := make([]place, count) // where each block's bytes go
	o.mu.Lock()
	o.top.lookup(first, targets)
	o.mu.Unlock()
	fresh := make([]place, count) // what the top must learn; absent: nothing, its slot is overwritten in place
	wanted := 0
	for i, t := range targets {
		if isZero(p[i*BlockBytes : (i+1)*BlockBytes]) {
			targets[i], fresh[i] = absent, zero
		} else if !t.inScratch() {
			targets[i] = absent
			wanted++
		}
	}
	slots, err := o.scratch.alloc(wanted)
	if err != nil {
		return fmt.Errorf("write %d blocks from block %d on: %w", count, first, err)
	}
	next := 0
	for i := range targets {
		if targets[i] == absent && fresh[i] == absent {
			targets[i], fresh[i] = slots[next], slots[next]
			next++
		}
	}
	for i := 0; i < count; {
		j := i + 1
		if targets[i] != absent {
			for j < count && targets[j] == targets[i]+place(j-i) {
				j++
			}
			if err := o.scratch.writeAt(p[i*BlockBytes:j*BlockBytes], targets[i].offset()); err != nil {
				o.scratch.release(slots) // no layer has named them
				return fmt.Errorf("write %d blocks from block %d on: %w", j-i, first+uint64(i), err)
			}
		}
		i = j
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var freed []place
	for i, f := range fresh {
		if f == absent {
			continue
		}
		if old := o.top.set(first+uint64(i), f); old.inScratch() {
			freed = append(freed, old)
		}
	}
	o.retire(freed)
	return nil
}

// writePart writes less than a block. Where the top has the block the bytes go straight to its slot. Otherwise the
// block is read from below, patched, and named if the top has not changed its mind meanwhile; if it has, everything
// is done again with what it says now. So no write that finished in between is undone, and no lock spans the reads.
func (o *Overlay) writePart(ctx context.Context, p []byte, block uint64, inner int64) error {
	for {
		done, err := o.tryWritePart(ctx, p, block, inner)
		if err != nil {
			return fmt.Errorf("write %d bytes into block %d: %w", len(p), block, err)
		}
		if done {
			return nil
		}
	}
}

func (o *Overlay) tryWritePart(ctx context.Context, p []byte, block uint64, inner int64) (done bool, err error) {
	o.mu.Lock()
	was := o.top.get(block)
	below := [1]place{was}
	if o.frozen != nil {
		o.frozen.lookup(block, below[:])
	}
	base := o.base
	o.mu.Unlock()
	if was.inScratch() {
		return true, o.scratch.writeAt(p, was.offset()+inner)
	}
	whole := make([]byte, BlockBytes)
	switch b := below[0]; {
	case b == absent:
		err = base.ReadSlot(ctx, block, whole)
	case b.inScratch():
		err = o.scratch.readAt(whole, b.offset())
	}
	if err != nil {
		return false, fmt.Errorf("read what was there: %w", err)
	}
	copy(whole[inner:], p)
	now := zero
	var slots []place
	if !isZero(whole) {
		if slots, err = o.scratch.alloc(1); err != nil {
			return false, err
		}
		now = slots[0]
		if err := o.scratch.writeAt(whole, now.offset()); err != nil {
			o.scratch.release(slots)
			return false, err
		}
	}
	o.mu.Lock()
	if o.top.get(block) == was {
		o.top.set(block, now)
		o.mu.Unlock()
		return true, nil
	}
	o.mu.Unlock()
	if len(slots) > 0 {
		o.scratch.release(slots)
	}
	return false, nil
}
