package uffd

import (
	"context"
	"fmt"
	"slices"
)

const (
	batchPages = 4096 // 16 MiB are asked of the Source at a time, most urgent pages first
	runPages   = 64   // 256 KiB go into the file at a time
)

// Prefetch brings pages in that are absent, in about the order given: the first 16 MiB before the next. Pages come in any
// order and more than once. The machine isn't told; it finds them when it touches them.
func (b *Base) Prefetch(ctx context.Context, pages []uint64) error {
	w := runWriter{base: b}
	for len(pages) > 0 {
		batch := make([]uint64, 0, min(batchPages, len(pages)))
		for len(pages) > 0 && len(batch) < batchPages {
			page := pages[0]
			pages = pages[1:]
			if page >= b.slots {
				return fmt.Errorf("prefetch page %d: the snapshot has %d", page, b.slots)
			}
			if !b.Present(page) {
				batch = append(batch, page)
			}
		}
		if len(batch) == 0 {
			continue
		}
		slices.Sort(batch)
		batch = slices.Compact(batch)
		if err := b.src.ReadSlots(ctx, batch, w.add); err != nil {
			return fmt.Errorf("prefetch %d pages: %w", len(batch), err)
		}
		if err := w.flush(); err != nil {
			return fmt.Errorf("prefetch %d pages: %w", len(batch), err)
		}
		for _, page := range batch {
			if !b.Present(page) {
				return fmt.Errorf("prefetch %d pages: the source gave no page %d", len(batch), page)
			}
		}
	}
	return nil
}

// runWriter joins neighbouring pages into one write.
type runWriter struct {
	base  *Base
	first uint64
	n     uint64
	zero  bool
	data  []byte // of n pages, unless zero
}

// add copies data, which the Source reuses.
func (w *runWriter) add(page uint64, data []byte) error {
	if data != nil && len(data) != pageBytes {
		return fmt.Errorf("the source gave %d bytes for page %d", len(data), page)
	}
	zero := data == nil
	joins := w.n > 0 && page == w.first+w.n && zero == w.zero && (zero || w.n < runPages)
	if !joins {
		if err := w.flush(); err != nil {
			return err
		}
		w.first, w.zero = page, zero
	}
	w.n++
	w.data = append(w.data, data...)
	return nil
}

func (w *runWriter) flush() error {
	n, data := w.n, w.data
	w.n, w.data = 0, w.data[:0]
	switch {
	case n == 0:
		return nil
	case w.zero:
		return w.base.writeZeros(w.first, n)
	default:
		return w.base.write(w.first, data)
	}
}
