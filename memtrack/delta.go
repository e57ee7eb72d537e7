package memtrack

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Delta is the pages changed at one cut, copied, unchanging while the machine runs on. It satisfies store.Changes.
// It ends in exactly one of Commit and Rollback; ending it again is a no-op. Safe for concurrent use.
//
//	open ──Commit──▶ ended            the pages are forgotten
//	open ──Rollback▶ ended            the ledger owes the pages again
type Delta struct {
	pages []uint64 // ascending; not changed after open

	mu     sync.RWMutex // guards the rest; held for reading while a page is copied out, so that the arena isn't reused under it
	data   *arena       // nil once ended
	ledger *Ledger
}

// Slots yields the changed pages in ascending order.
func (d *Delta) Slots() iter.Seq[uint64] { return slices.Values(d.pages) }

// Len is the number of changed pages.
func (d *Delta) Len() int { return len(d.pages) }

// ReadSlot copies one changed page.
func (d *Delta) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if len(dst) != PageBytes {
		return fmt.Errorf("read page %d of a delta: the buffer has %d bytes, want %d", slot, len(dst), PageBytes)
	}
	at, found := slices.BinarySearch(d.pages, slot)
	if !found {
		return fmt.Errorf("read page %d of a delta: it isn't one of its %d pages", slot, len(d.pages))
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.data == nil {
		return fmt.Errorf("read page %d of a delta: %w", slot, ErrEnded)
	}
	copy(dst, d.data.bytes[at*PageBytes:])
	return nil
}

// Commit forgets the delta: its pages are safe elsewhere.
func (d *Delta) Commit() { d.end(false) }

// Rollback makes the next Cut report these pages again, with what they hold then.
func (d *Delta) Rollback() { d.end(true) }

func (d *Delta) end(owe bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.data == nil {
		return
	}
	if owe {
		d.ledger.Owe(d.pages)
	}
	d.ledger.closed()
	arenas.give(d.data)
	d.data = nil
}
