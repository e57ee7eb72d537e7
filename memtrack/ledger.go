package memtrack

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Ledger is the part of a Tracker that makes a failed checkpoint lose nothing: it lets one delta be open at a time (I5) and
// remembers the pages that were taken but are not safe elsewhere. The zero value is ready. Safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex // guards the rest; not held while pages are copied
	open bool
	owed []uint64 // ascending, no duplicates
}

// Ready is ErrDeltaOpen while a delta is open. A tracker asks before it takes the changed pages from the kernel.
func (l *Ledger) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return ErrDeltaOpen
	}
	return nil
}

// Owe makes the next Cut report these pages, ascending, too. It keeps no reference to pages.
func (l *Ledger) Owe(pages []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = Union(l.owed, pages)
}

// Owed gives the pages the next Cut reports whether or not they are written again. The caller must not change them.
func (l *Ledger) Owed() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed
}

// Cut copies pages, ascending, and the owed ones from m and opens their delta. If that fails, all of them are owed.
func (l *Ledger) Cut(ctx context.Context, m Memory, pages []uint64) (*Delta, error) {
	l.mu.Lock()
	if l.open {
		l.owed = Union(l.owed, pages)
		l.mu.Unlock()
		return nil, ErrDeltaOpen
	}
	all := Union(l.owed, pages)
	l.owed, l.open = nil, true
	l.mu.Unlock()

	d := &Delta{pages: all, ledger: l}
	err := d.copyPages(ctx, m)
	if err == nil {
		return d, nil
	}
	l.Owe(all)
	l.closed()
	return nil, fmt.Errorf("copy %d changed pages: %w", len(all), err)
}

func (l *Ledger) closed() {
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
}

// Union merges two ascending lists into one without duplicates. The result may be one of them.
func Union(a, b []uint64) []uint64 {
	if len(a) == 0 {
		return slices.Clip(b)
	}
	if len(b) == 0 {
		return slices.Clip(a)
	}
	merged := make([]uint64, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			merged, a = append(merged, a[0]), a[1:]
		case a[0] > b[0]:
			merged, b = append(merged, b[0]), b[1:]
		default:
			merged, a, b = append(merged, a[0]), a[1:], b[1:]
		}
	}
	return append(append(merged, a...), b...)
}
