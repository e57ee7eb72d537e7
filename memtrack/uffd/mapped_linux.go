package uffd

import (
	"encoding/binary"
	"fmt"
	"os"

	"flash/memtrack"
)

// An entry of /proc/PID/pagemap has 8 bytes a page; these bits say that the process has it mapped.
const (
	pagemapEntryBytes = 8
	pagemapPresent    = 1<<63 | 1<<62 // in memory, or swapped out
)

// withMapped adds to pages, after each, those in its window that the process has mapped. The kernel maps what is touched
// and, in memory registered for write protection, nothing around it.
func withMapped(s memtrack.Span, pages []uint64) []uint64 {
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", s.PID))
	if err != nil {
		return pages
	}
	defer pagemap.Close()
	known := make(map[uint64]bool, 2*len(pages))
	out := make([]uint64, 0, 2*len(pages))
	add := func(page uint64) {
		if !known[page] {
			known[page] = true
			out = append(out, page)
		}
	}
	windows := make(map[uint64]bool, len(pages)/4)
	var entries [zeroWindowPages * pagemapEntryBytes]byte
	for _, page := range pages {
		add(page)
		low := page / zeroWindowPages * zeroWindowPages
		if windows[low] {
			continue
		}
		windows[low] = true
		n := min(zeroWindowPages, s.Pages()-low)
		if _, err := pagemap.ReadAt(entries[:n*pagemapEntryBytes], int64(s.Address(low)/pageBytes*pagemapEntryBytes)); err != nil {
			continue
		}
		for i := range n {
			if binary.NativeEndian.Uint64(entries[i*pagemapEntryBytes:])&pagemapPresent != 0 {
				add(low + i)
			}
		}
	}
	return out[:min(len(out), maxTouched)]
}
