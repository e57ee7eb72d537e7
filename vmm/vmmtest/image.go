package vmmtest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"testing"

	"flash/blockdelta"
	"flash/memtrack"
)

const slotBytes = memtrack.PageBytes

var zeroSlot [slotBytes]byte

// image is memory or a disk at one instant. It never changes once made. It is a memtrack.Source and a blockdelta.Base.
type image struct {
	slots uint64
	base  blockdelta.Base   // of slots that are not in data; nil: zeros
	data  map[uint64][]byte // over nil, zero slots are left out
}

func newImage(slots uint64, base blockdelta.Base) *image {
	return &image{slots, base, map[uint64][]byte{}}
}

func (im *image) Slots() uint64 { return im.slots }

func (im *image) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if slot >= im.slots {
		return fmt.Errorf("slot %d of %d", slot, im.slots)
	}
	p, ok := im.data[slot]
	if !ok && im.base != nil {
		return im.base.ReadSlot(ctx, slot, dst)
	}
	clear(dst)
	copy(dst, p)
	return ctx.Err()
}

func (im *image) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, slot := range slots {
		p := make([]byte, slotBytes)
		if err := im.ReadSlot(ctx, slot, p); err != nil {
			return err
		}
		if bytes.Equal(p, zeroSlot[:]) {
			p = nil
		}
		if err := each(slot, p); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (im *image) IsZero(ctx context.Context, slot uint64) (bool, error) {
	var p [slotBytes]byte
	err := im.ReadSlot(ctx, slot, p[:])
	return p == zeroSlot, err
}

// changes is what a delta of memory and one of a disk have in common.
type changes interface {
	Slots() iter.Seq[uint64]
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
}

// with gives the image with a delta's slots replaced, as a store would.
func (im *image) with(t testing.TB, d changes) *image {
	t.Helper()
	next := &image{im.slots, im.base, maps.Clone(im.data)}
	least := uint64(0)
	for slot := range d.Slots() {
		if slot < least || slot >= im.slots {
			t.Fatalf("the delta gives slot %d of %d, and slots before it already up to %d", slot, im.slots, least)
		}
		least = slot + 1
		p := make([]byte, slotBytes)
		if err := d.ReadSlot(t.Context(), slot, p); err != nil {
			t.Fatal(err)
		}
		next.set(slot, p)
	}
	return next
}

func (im *image) set(slot uint64, p []byte) {
	if im.base == nil && bytes.Equal(p, zeroSlot[:]) {
		delete(im.data, slot)
	} else {
		im.data[slot] = p
	}
}

// differs compares a memory's image with all of a machine's memory and gives the pages that are not the same.
func (im *image) differs(t testing.TB, m memtrack.Memory) []uint64 {
	t.Helper()
	if m.Pages() != im.slots {
		t.Fatalf("the memory has %d pages, not %d", m.Pages(), im.slots)
	}
	const window = 512
	var differ []uint64
	view := make([]byte, window*slotBytes)
	for first := uint64(0); first < im.slots; first += window {
		var pages []uint64
		for p := first; p < min(first+window, im.slots); p++ {
			pages = append(pages, p)
		}
		if err := m.View(t.Context(), pages, view[:len(pages)*slotBytes]); err != nil {
			t.Fatal(err)
		}
		for i, p := range pages {
			want := im.data[p]
			if want == nil {
				want = zeroSlot[:]
			}
			if !bytes.Equal(view[i*slotBytes:(i+1)*slotBytes], want) {
				differ = append(differ, p)
			}
		}
	}
	return differ
}

// mustBe fails unless the image is all of a paused machine's memory.
func (im *image) mustBe(t testing.TB, what string, m memtrack.Memory) {
	t.Helper()
	if differ := im.differs(t, m); len(differ) > 0 {
		t.Fatalf("%s: %d pages of memory differ, the first is page %d", what, len(differ), differ[0])
	}
}

func (im *image) equal(o *image) bool {
	return im.slots == o.slots && maps.EqualFunc(im.data, o.data, bytes.Equal)
}

func (im *image) contains(text string) bool {
	for _, p := range im.data {
		if bytes.Contains(p, []byte(text)) {
			return true
		}
	}
	return false
}
