package store

import (
	"context"
	"fmt"
	"slices"

	"flash/cas"
	"flash/store/manifest"
)

const (
	// readWindow is how many slots are looked up, and their chunks asked for, at once: 64 MiB of image.
	readWindow = 1 << 14

	maxReadAllBytes = 256 << 20
)

// ReadSlots reads many slots with few long reads and calls each once for every slot, in any order, from one goroutine
// at a time. data is nil for a zero slot and is reused after each returns.
func (im *Image) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	for window := range slices.Chunk(slots, readWindow) {
		if err := im.readWindow(ctx, window, each); err != nil {
			return err
		}
	}
	return nil
}

func (im *Image) readWindow(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	entries, err := im.entriesOf(ctx, slots)
	if err != nil {
		return err
	}
	var refs []cas.Ref
	var slotOf []uint64
	var filled []byte
	for i, e := range entries {
		switch e.Tag {
		case manifest.Chunk:
			refs, slotOf = append(refs, e.Ref()), append(slotOf, slots[i])
		case manifest.Zero:
			err = each(slots[i], nil)
		case manifest.Same:
			if filled == nil {
				filled = make([]byte, cas.SlotBytes)
			}
			fill(filled, e)
			err = each(slots[i], filled)
		}
		if err != nil {
			return err
		}
	}
	if len(refs) == 0 {
		return nil
	}
	return im.s.chunks.GetMany(ctx, refs, func(i int, data []byte, err error) error {
		if err != nil {
			return im.slotError(slotOf[i], err)
		}
		if len(data) != cas.SlotBytes {
			return im.slotError(slotOf[i], notAPage(refs[i].Hash, len(data)))
		}
		return each(slotOf[i], data)
	})
}

// entriesOf finds what many slots hold, going down one level at a time for all of them together.
func (im *Image) entriesOf(ctx context.Context, slots []uint64) ([]*manifest.Entry, error) {
	entries := make([]*manifest.Entry, len(slots))
	for i, slot := range slots {
		if slot >= im.slots {
			return nil, fmt.Errorf("image %s has %d slots, slot %d is outside", im.name, im.slots, slot)
		}
		entries[i] = &im.root
	}
	nodeOf := make([]int, len(slots))
	for level := im.level; level >= 0; level-- {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var refs []cas.Ref
		number := map[cas.Hash]int{}
		for i, e := range entries {
			if e.Tag == manifest.Zero {
				continue
			}
			if i > 0 && entries[i-1].Hash == e.Hash { // most neighbours share their nodes
				nodeOf[i] = nodeOf[i-1]
				continue
			}
			at, ok := number[e.Hash]
			if !ok {
				at = len(refs)
				number[e.Hash], refs = at, append(refs, e.Ref())
			}
			nodeOf[i] = at
		}
		nodes, err := im.s.nodes.nodesOf(ctx, refs, level)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", im.name, err)
		}
		for i, e := range entries {
			if e.Tag == manifest.Zero {
				entries[i] = &zeroEntry
				continue
			}
			entries[i] = &nodes[nodeOf[i]].entries[indexAt(slots[i], level)]
		}
	}
	return entries, nil
}

// ReadAll gives the whole image; for device state and kernels. Refused above 256 MiB.
func (im *Image) ReadAll(ctx context.Context) ([]byte, error) {
	if im.bytes > maxReadAllBytes {
		return nil, fmt.Errorf("image %s has %d MiB, at most %d are read at once", im.name, im.bytes>>20, maxReadAllBytes>>20)
	}
	p := make([]byte, im.slots*cas.SlotBytes)
	slots := make([]uint64, im.slots)
	for i := range slots {
		slots[i] = uint64(i)
	}
	err := im.ReadSlots(ctx, slots, func(slot uint64, data []byte) error {
		copy(p[slot*cas.SlotBytes:], data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p[:im.bytes], nil
}
