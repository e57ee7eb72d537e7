package blockdelta

import (
	"context"
	"fmt"
)

// extent is a request's bytes and the blocks they touch.
type extent struct {
	p     []byte
	off   int64
	first uint64 // block of the first byte
	count int    // blocks touched
}

// extentOf needs len(p) > 0 and a range inside the disk.
func extentOf(p []byte, off int64) extent {
	first := uint64(off) / BlockBytes
	last := (uint64(off) + uint64(len(p)) - 1) / BlockBytes
	return extent{p, off, first, int(last - first + 1)}
}

// bytes is the part of the request that lies in its blocks i to j-1, and where in block i it begins.
func (x extent) bytes(i, j int) (part []byte, inner int64) {
	lo := max(x.off, int64(x.first+uint64(i))*BlockBytes)
	hi := min(x.off+int64(len(x.p)), int64(x.first+uint64(j))*BlockBytes)
	return x.p[lo-x.off : hi-x.off], lo % BlockBytes
}

// ReadAt fills p from any offset inside the disk. When it fails, what p holds is undefined.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.inRange("read", off, int64(len(p))); err != nil {
		return err
	}
	if len(p) == 0 {
		return nil
	}
	e, err := o.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("read %d bytes at offset %d: %w", len(p), off, err)
	}
	defer o.end(e, false)
	x := extentOf(p, off)
	var few [32]place // most requests are short: keep their places on the stack
	places := few[:]
	if x.count > len(few) {
		places = make([]place, x.count)
	}
	places = places[:x.count]
	base := o.resolve(x.first, places)
	missing, err := o.readLayers(x, places)
	if err != nil {
		return err
	}
	if missing > 0 {
		return readBase(ctx, base, x, places, missing)
	}
	return nil
}

// readLayers fills what the layers hold and counts the blocks left to the base.
func (o *Overlay) readLayers(x extent, places []place) (missing int, err error) {
	for i := 0; i < len(places); {
		j := i + 1
		switch p := places[i]; {
		case p == absent:
			missing++
		case p == zero:
			part, _ := x.bytes(i, j)
			clear(part)
		default:
			for j < len(places) && places[j] == p+place(j-i) { // neighbours on the disk and in the file: one read
				j++
			}
			part, inner := x.bytes(i, j)
			if err := o.scratch.readAt(part, p.offset()+inner); err != nil {
				return 0, fmt.Errorf("read block %d: %w", x.first+uint64(i), err)
			}
		}
		i = j
	}
	return missing, nil
}

// readBase fills the absent blocks with one call to the base.
func readBase(ctx context.Context, base Base, x extent, places []place, missing int) error {
	slots := make([]uint64, 0, missing)
	for i, p := range places {
		if p == absent {
			slots = append(slots, x.first+uint64(i))
		}
	}
	if part, _ := x.bytes(int(slots[0]-x.first), int(slots[0]-x.first)+1); missing == 1 && len(part) == BlockBytes {
		if err := base.ReadSlot(ctx, slots[0], part); err != nil {
			return fmt.Errorf("read base block %d: %w", slots[0], err)
		}
		return nil
	}
	given := 0
	err := base.ReadSlots(ctx, slots, func(slot uint64, data []byte) error {
		if slot < x.first || slot >= x.first+uint64(x.count) || data != nil && len(data) != BlockBytes {
			return fmt.Errorf("the base gave %d bytes for block %d, which was not asked for", len(data), slot)
		}
		given++
		part, inner := x.bytes(int(slot-x.first), int(slot-x.first)+1)
		if data == nil {
			clear(part)
		} else {
			copy(part, data[inner:])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %d base blocks from block %d on: %w", missing, slots[0], err)
	}
	if given != missing { // a block that was not given must not be taken for whatever p held (I7's kind)
		return fmt.Errorf("read %d base blocks from block %d on: the base gave %d", missing, slots[0], given)
	}
	return nil
}
