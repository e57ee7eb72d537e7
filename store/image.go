package store

import (
	"context"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// Image is a read-only view. Opening and reading cost the same whatever the length of the history.
// It satisfies memtrack.Source and blockdelta.Base.
type Image struct {
	s     *Store
	name  string
	bytes uint64
	slots uint64
	level int // of the root
	root  manifest.Entry
}

func (s *Store) image(m manifest.Image) *Image {
	slots := manifest.SlotCount(m.Bytes)
	return &Image{s: s, name: m.Name, bytes: m.Bytes, slots: slots, level: manifest.RootLevel(slots), root: manifest.RootEntry(m.Root)}
}

// Bytes is the exact length.
func (im *Image) Bytes() uint64 { return im.bytes }

// Slots is the length in slots.
func (im *Image) Slots() uint64 { return im.slots }

// ReadSlot fills dst, SlotBytes long; a zero slot is zeros.
func (im *Image) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if len(dst) != cas.SlotBytes {
		return fmt.Errorf("image %s: a buffer of %d bytes for a slot", im.name, len(dst))
	}
	e, err := im.entry(ctx, slot)
	if err != nil {
		return err
	}
	if e.Tag != manifest.Chunk {
		fill(dst, e)
		return nil
	}
	// The capacity ends with the slot: whatever the chunk's length, nothing behind dst is touched.
	p, err := im.s.chunks.Get(ctx, e.Ref(), dst[:0:cas.SlotBytes])
	if err != nil {
		return im.slotError(slot, err)
	}
	if len(p) != cas.SlotBytes {
		return im.slotError(slot, notAPage(e.Hash, len(p)))
	}
	if &p[0] != &dst[0] {
		copy(dst, p)
	}
	return nil
}

// IsZero tells without reading data whether a slot is zero.
func (im *Image) IsZero(ctx context.Context, slot uint64) (bool, error) {
	e, err := im.entry(ctx, slot)
	return err == nil && e.Tag == manifest.Zero, err
}

var zeroEntry manifest.Entry

// entry finds what a slot holds, without Badger: one cached node a level.
func (im *Image) entry(ctx context.Context, slot uint64) (*manifest.Entry, error) {
	if slot >= im.slots {
		return nil, fmt.Errorf("image %s has %d slots, slot %d is outside", im.name, im.slots, slot)
	}
	e := &im.root
	for level := im.level; level >= 0; level-- {
		if e.Tag == manifest.Zero {
			return &zeroEntry, nil
		}
		n, err := im.s.nodes.node(ctx, e.Ref(), level)
		if err != nil {
			return nil, im.slotError(slot, err)
		}
		e = &n.entries[indexAt(slot, level)]
	}
	return e, nil
}

// place is a node and where it lies.
type place struct {
	node *node
	ref  cas.Ref
}

// nodeAt gives the node at a level and position, counted in nodes of that level; a zero place where all is zero.
func (im *Image) nodeAt(ctx context.Context, level int, position uint64) (place, error) {
	first := position * manifest.SlotsUnder(level)
	if im == nil || level > im.level || first >= im.slots {
		return place{}, nil
	}
	e := &im.root
	for at := im.level; ; at-- {
		if e.Tag == manifest.Zero {
			return place{}, nil
		}
		n, err := im.s.nodes.node(ctx, e.Ref(), at)
		if err != nil {
			return place{}, im.slotError(first, err)
		}
		if at == level {
			return place{n, e.Ref()}, nil
		}
		e = &n.entries[indexAt(first, at)]
	}
}

// indexAt is which entry of a node leads to a slot.
func indexAt(slot uint64, level int) int {
	if level == 0 {
		return int(slot % manifest.LeafEntries)
	}
	return int(slot / manifest.SlotsUnder(level-1) % manifest.InnerEntries)
}

// fill writes what an entry that needs no chunk holds.
func fill(dst []byte, e *manifest.Entry) {
	if e.Tag == manifest.Zero {
		clear(dst)
		return
	}
	pattern := e.Pattern()
	for n := copy(dst, pattern[:]); n < len(dst); {
		n += copy(dst[n:], dst[:n])
	}
}

func (im *Image) slotError(slot uint64, err error) error {
	return fmt.Errorf("image %s slot %d: %w", im.name, slot, err)
}

// notAPage is the error for a chunk that hashes to its name but can't be what a slot holds.
func notAPage(h cas.Hash, bytes int) error {
	return fmt.Errorf("chunk %s has %d bytes, a slot %d: %w", h, bytes, cas.SlotBytes, ErrFormat)
}
