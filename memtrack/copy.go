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
		arenas.hold()
		d.data = []*arena{first}
		return m.View(ctx, d.pages, first.bytes[:len(d.pages)*PageBytes])
	}
	defer arenas.give(first)
	scratch := scratchOf(m)
	d.places = make([]int32, 0, len(d.pages))
	for pages := d.pages; len(pages) > 0; {
		n := min(arenaPages, len(pages))
		window := first.bytes[:n*PageBytes]
		if err := m.View(ctx, pages[:n], window); err != nil {
			return err
		}
		if err := d.keep(window, scratch); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// keep appends whole pages, zeros as a place only. scratch is the folder for what doesn't fit; "": all does.
func (d *Delta) keep(window []byte, scratch string) error {
	for len(window) > 0 {
		n := 0 // pages up to the next that is zero
		for n < len(window)/PageBytes && !bytes.Equal(window[n*PageBytes:][:PageBytes], zeroPage[:]) {
			n++
		}
		if err := d.keepData(window[:n*PageBytes], scratch); err != nil {
			return err
		}
		window = window[n*PageBytes:]
		for len(window) > 0 && bytes.Equal(window[:PageBytes], zeroPage[:]) {
			d.places = append(d.places, zeroPlace)
			window = window[PageBytes:]
		}
	}
	return nil
}

// keepData appends pages that aren't zero: into arenas as long as there are any, then into the file, all of them.
func (d *Delta) keepData(pages []byte, scratch string) (err error) {
	for len(pages) > 0 {
		room := len(d.data)*arenaPages - d.kept
		if room == 0 && d.extra == nil {
			a, err := arenas.takeHeld(scratch != "")
			if err != nil {
				return err
			}
			if a != nil {
				d.data = append(d.data, a)
				continue
			}
			if d.extra, err = newSpill(scratch); err != nil {
				return err
			}
		}
		if d.extra != nil {
			for i := range len(pages) / PageBytes {
				d.places = append(d.places, int32(d.kept+d.extra.pages+i))
			}
			return d.extra.append(pages)
		}
		n := min(room, len(pages)/PageBytes) // room is in the last arena
		copy(d.data[d.kept/arenaPages].bytes[d.kept%arenaPages*PageBytes:], pages[:n*PageBytes])
		for range n {
			d.places = append(d.places, int32(d.kept))
			d.kept++
		}
		pages = pages[n*PageBytes:]
	}
	return nil
}
