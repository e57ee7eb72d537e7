// Package memtrack knows which pages of a guest's memory changed, and brings absent pages in when they are touched.
//
// Terms: a page is 4 KiB of guest memory, numbered from 0 in the order of the machine's memory image (guest RAM without
// its holes). A cut is the instant at which a set of changed pages is taken; what it gives is a Delta.
// Absent means that the page's bytes are still only in the Source. Absent is never zero (I7).
//
// Lock order and lifetimes: a Tracker and a Pager belong to one machine and end before its process is reaped.
package memtrack

import (
	"context"
	"iter"
)

// PageBytes is the page size.
const PageBytes = 4096

// Source is where absent pages come from; *store.Image is one.
type Source interface {
	// ReadSlot fills dst, PageBytes long.
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
	// ReadSlots calls each once for every slot, in any order; data is nil for a zero page and is reused after each returns.
	ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error
	// IsZero tells without reading data.
	IsZero(ctx context.Context, slot uint64) (bool, error)
	Slots() uint64
}

// Memory is a guest's memory as this process may read it (I6): never by a plain load.
type Memory interface {
	Pages() uint64
	// View copies pages, ascending, into dst, len(pages)*PageBytes long.
	View(ctx context.Context, pages []uint64, dst []byte) error
}

// Tracker finds the pages written since the last cut.
type Tracker interface {
	// Start begins to track. What was written before Start counts as changed at the first Cut.
	Start(m Memory) error
	// Cut takes the changed pages and copies them.
	// Preconditions: the machine is paused; no delta is open.
	Cut(ctx context.Context) (*Delta, error)
	// Pending counts the pages written since the last cut without taking them. Precondition: the machine is paused.
	Pending(ctx context.Context) (int, error)
	Stop() error
	// Name says which way it works: "pagemap-scan", "soft-dirty", "hash-compare".
	Name() string
}

// Delta is the pages changed at one cut, copied, unchanging while the machine runs on. It satisfies store.Changes.
// It ends in exactly one of Commit and Rollback; ending it again is a no-op.
type Delta struct{}

// Slots yields the changed pages in ascending order.
func (d *Delta) Slots() iter.Seq[uint64] { panic("contract") }

// Len is the number of changed pages.
func (d *Delta) Len() int { panic("contract") }

// ReadSlot copies one changed page.
func (d *Delta) ReadSlot(ctx context.Context, slot uint64, dst []byte) error { panic("contract") }

// Commit forgets the delta: its pages are safe elsewhere.
func (d *Delta) Commit() {}

// Rollback makes the next Cut report these pages again, with what they hold then.
func (d *Delta) Rollback() {}
