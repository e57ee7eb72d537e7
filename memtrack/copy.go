package memtrack

import (
	"bytes"
	"context"
)

// zeroPlace is the place of a page that holds only zeros.
const zeroPlace = -1

var zeroPage [PageBytes]byte

// copyPages fills a new delta. What fits into an arena is copied once, as it is. More than that is what the first cut of a
// booted machine has: its kernel has cleared all memory, so nearly all of it is zero and takes no room.
func (d *Delta) copyPages(ctx context.Context, m Memory) (err error) {
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	first, err := arenas.take()
	if err != nil {
		return err
	}
	if len(d.pages) <= arenaPages {
		d.data = []*arena{first}
		return m.View(ctx, d.pages, first.bytes[:len(d.pages)*PageBytes])
	}
	defer arenas.give(first)
	d.places = make([]int32, 0, len(d.pages))
	for pages := d.pages; len(pages) > 0; {
		n := min(arenaPages, len(pages))
		window := first.bytes[:n*PageBytes]
		if err := m.View(ctx, pages[:n], window); err != nil {
			return err
		}
		if err := d.keep(window); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// keep appends whole pages, zeros as a place only.
func (d *Delta) keep(window []byte) error {
	for ; len(window) > 0; window = window[PageBytes:] {
		page := window[:PageBytes]
		if bytes.Equal(page, zeroPage[:]) {
			d.places = append(d.places, zeroPlace)
			continue
		}
		if d.kept == len(d.data)*arenaPages {
			a, err := arenas.take()
			if err != nil {
				return err
			}
			d.data = append(d.data, a)
		}
		copy(d.data[d.kept/arenaPages].bytes[d.kept%arenaPages*PageBytes:], page)
		d.places = append(d.places, int32(d.kept))
		d.kept++
	}
	return nil
}
