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
	pages  []uint64 // ascending; not changed after open
	places []int32  // where each page lies, counted in pages over all arenas, then in the file; zeroPlace: nowhere. nil: they lie in order
	kept   int      // pages that lie in arenas, if places says where
	ledger *Ledger

	mu    sync.RWMutex // guards the rest; held for reading while a page is copied out, so that no arena is reused under it
	data  []*arena     // of arenaPages each
	extra *spill       // nil: all is held
	ended bool
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
	if d.ended {
		return fmt.Errorf("read page %d of a delta: %w", slot, ErrEnded)
	}
	if d.places != nil {
		at = int(d.places[at])
	}
	if at == zeroPlace {
		clear(dst)
		return nil
	}
	if d.extra != nil && at >= d.kept {
		if err := d.extra.read(at-d.kept, dst); err != nil {
			return fmt.Errorf("read page %d of a delta: %w", slot, err)
		}
		return nil
	}
	copy(dst, d.data[at/arenaPages].bytes[at%arenaPages*PageBytes:])
	return nil
}

// Commit forgets the delta: its pages are safe elsewhere.
func (d *Delta) Commit() { d.end(false) }

// Rollback makes the next Cut report these pages again, with what they hold then.
func (d *Delta) Rollback() { d.end(true) }

func (d *Delta) end(owe bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.ended = true
	if owe {
		d.ledger.Owe(d.pages)
	}
	d.ledger.closed()
	d.release()
}

// release gives the arenas back. It needs mu, or that nobody else has d.
func (d *Delta) release() {
	for _, a := range d.data {
		arenas.giveHeld(a)
	}
	d.data = nil
	if d.extra != nil {
		d.extra.close()
		d.extra = nil
	}
}
