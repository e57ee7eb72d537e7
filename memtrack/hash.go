package memtrack

import (
	"context"
	"fmt"

	"github.com/zeebo/xxh3"
)

// windowPages is how much is viewed at a time: 1 MiB stays in a core's cache between the copy and its hash.
const windowPages = 256

// HashTracker finds changed pages by comparing a 128-bit hash of every page with that of the last cut. It needs nothing of
// the operating system, but the pause grows with the size of memory: about 0.4 s a GiB. It may report a page that was
// written with what it held before; it never misses one but by a collision, which a guest can't aim for without the seed.
// Memory that has an Absent(page) method isn't brought in by tracking it; if it has Original(page, dst) too, a page that
// came in and wasn't written isn't reported.
type HashTracker struct {
	baseline Baseline
	seed     uint64

	ledger Ledger
	memory Memory
	hashes []xxh3.Uint128
	known  bitmap
}

// NewHashTracker makes a tracker. The seed should be random.
func NewHashTracker(b Baseline, seed uint64) *HashTracker {
	return &HashTracker{baseline: b, seed: seed}
}

// Name is "hash-compare".
func (t *HashTracker) Name() string { return "hash-compare" }

// Start begins to track. Starting again on the same memory is a no-op.
func (t *HashTracker) Start(m Memory) error {
	if t.memory != nil && SameMemory(t.memory, m) {
		return nil
	}
	if t.memory != nil {
		return fmt.Errorf("track by hashes: started already, on other memory")
	}
	hashes := make([]xxh3.Uint128, m.Pages())
	known := newBitmap(m.Pages())
	switch t.baseline {
	case Zeroed:
		zero := xxh3.Hash128Seed(make([]byte, PageBytes), t.seed)
		for page := range hashes {
			hashes[page] = zero
			known.set(uint64(page))
		}
	case Same:
		err := t.eachPage(context.Background(), m, func(page uint64, h xxh3.Uint128) {
			hashes[page] = h
			known.set(page)
		})
		if err != nil {
			return fmt.Errorf("track by hashes: %w", err)
		}
	case Unknown:
	}
	t.memory, t.hashes, t.known = m, hashes, known
	return Prepare()
}

// Cut takes the changed pages and copies them.
func (t *HashTracker) Cut(ctx context.Context) (*Delta, error) {
	if err := t.ledger.Ready(); err != nil {
		return nil, fmt.Errorf("cut: %w", err)
	}
	var pages []uint64
	err := t.changed(ctx, func(page uint64, h xxh3.Uint128) {
		pages = append(pages, page)
		t.hashes[page] = h
		t.known.set(page)
	})
	if err != nil {
		t.ledger.Owe(pages) // their hashes are the new ones already
		return nil, fmt.Errorf("cut: %w", err)
	}
	return t.ledger.Cut(ctx, t.memory, pages)
}

// Pending counts the pages changed since the last cut.
func (t *HashTracker) Pending(ctx context.Context) (int, error) {
	var pages []uint64
	if err := t.changed(ctx, func(page uint64, _ xxh3.Uint128) { pages = append(pages, page) }); err != nil {
		return 0, fmt.Errorf("count changed pages: %w", err)
	}
	return len(Union(t.ledger.Owed(), pages)), nil
}

// Stop ends tracking. An open delta stays readable.
func (t *HashTracker) Stop() error {
	t.memory, t.hashes, t.known = nil, nil, nil
	return nil
}

func (t *HashTracker) changed(ctx context.Context, each func(page uint64, h xxh3.Uint128)) error {
	if t.memory == nil {
		return fmt.Errorf("tracking has not started: %w", ErrEnded)
	}
	return t.eachPage(ctx, t.memory, func(page uint64, h xxh3.Uint128) {
		was, known := t.hashes[page], t.known.has(page)
		if !known {
			was, known = t.original(page)
		}
		if !known || was != h {
			each(page, h)
		}
	})
}

// original gives the hash a page had when it came in, if its memory can still tell.
func (t *HashTracker) original(page uint64) (xxh3.Uint128, bool) {
	m, ok := t.memory.(interface {
		Original(page uint64, dst []byte) error
	})
	if !ok || t.baseline != Same {
		return xxh3.Uint128{}, false
	}
	var data [PageBytes]byte
	if err := m.Original(page, data[:]); err != nil {
		return xxh3.Uint128{}, false // then it counts as changed (I7)
	}
	return xxh3.Hash128Seed(data[:], t.seed), true
}

// eachPage hashes all pages of m that are not absent, in ascending order.
func (t *HashTracker) eachPage(ctx context.Context, m Memory, each func(page uint64, h xxh3.Uint128)) error {
	window := make([]byte, windowPages*PageBytes)
	pages := make([]uint64, 0, windowPages)
	sparse, _ := m.(interface{ Absent(page uint64) bool })
	for first := uint64(0); first < m.Pages(); first += windowPages {
		if err := ctx.Err(); err != nil {
			return err
		}
		pages = pages[:0]
		for page := first; page < min(first+windowPages, m.Pages()); page++ {
			if sparse == nil || !sparse.Absent(page) {
				pages = append(pages, page)
			}
		}
		if len(pages) == 0 {
			continue
		}
		view := window[:len(pages)*PageBytes]
		if err := m.View(ctx, pages, view); err != nil {
			return err
		}
		for i, page := range pages {
			each(page, xxh3.Hash128Seed(view[i*PageBytes:(i+1)*PageBytes], t.seed))
		}
	}
	return nil
}
