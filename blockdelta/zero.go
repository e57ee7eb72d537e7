package blockdelta

import (
	"context"
	"fmt"
)

// zeroRunBlocks bounds how much of a long Zero holds the lock at once: 64 leaves, some ten microseconds.
const zeroRunBlocks = 64 * leafBlocks

// Zero makes a range read as zeros; whole blocks cost no space. Trim and write-zeroes both end here.
func (o *Overlay) Zero(ctx context.Context, off, n int64) error {
	if err := o.inRange("zero", off, n); err != nil {
		return err
	}
	e, err := o.begin(ctx, true)
	if err != nil {
		return fmt.Errorf("zero %d bytes at offset %d: %w", n, off, err)
	}
	defer o.end(e, true)
	for n > 0 {
		block, inner := uint64(off)/BlockBytes, off%BlockBytes
		var done int64
		if inner != 0 || n < BlockBytes {
			done = min(BlockBytes-inner, n)
			if err := o.writePart(ctx, zeroBlock[:done], block, inner); err != nil {
				return err
			}
		} else {
			// A run ends where a leaf does, so that all but the first and the last leaf are whole.
			run := min(uint64(n)/BlockBytes, zeroRunBlocks-block%leafBlocks)
			o.zeroWhole(block, run)
			done = int64(run) * BlockBytes
		}
		off, n = off+done, n-done
		if err := ctx.Err(); err != nil && n > 0 {
			return fmt.Errorf("zero: %d bytes from offset %d on are left: %w", n, off, err)
		}
	}
	return nil
}

func (o *Overlay) zeroWhole(first, count uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retire(o.top.setZero(first, count, nil))
}
