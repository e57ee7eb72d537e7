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

// withMapped gives pages, each followed by those of around that the process has mapped; a new list. The kernel maps what is
// touched and, in memory registered for write protection, nothing around it.
func withMapped(s memtrack.Span, pages []uint64, around map[uint64][]uint64) []uint64 {
	known := make(map[uint64]bool, 2*len(pages))
	out := make([]uint64, 0, 2*len(pages))
	add := func(page uint64) {
		if !known[page] {
			known[page] = true
			out = append(out, page)
		}
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", s.PID))
	if err == nil {
		defer pagemap.Close()
	}
	var entries [aroundPages * pagemapEntryBytes]byte
	for _, page := range pages {
		add(page)
		near := around[page]
		if err != nil || len(near) == 0 {
			continue
		}
		n := min(aroundPages, s.Pages()-near[0])
		if _, err := pagemap.ReadAt(entries[:n*pagemapEntryBytes], int64(s.Address(near[0])/pageBytes*pagemapEntryBytes)); err != nil {
			continue
		}
		for _, p := range near {
			if binary.NativeEndian.Uint64(entries[(p-near[0])*pagemapEntryBytes:])&pagemapPresent != 0 {
				add(p)
			}
		}
	}
	return out[:min(len(out), maxTouched)]
}

// mapped gives those of pages that the process has mapped. known is false when it can't be told: the process has ended.
func mapped(s memtrack.Span, pages []uint64) (used []uint64, known bool) {
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", s.PID))
	if err != nil {
		return nil, false
	}
	defer pagemap.Close()
	used = make([]uint64, 0, len(pages))
	var entry [pagemapEntryBytes]byte
	for _, page := range pages {
		if page >= s.Pages() {
			continue
		}
		if _, err := pagemap.ReadAt(entry[:], int64(s.Address(page)/pageBytes*pagemapEntryBytes)); err != nil {
			return nil, false
		}
		if binary.NativeEndian.Uint64(entry[:])&pagemapPresent != 0 {
			used = append(used, page)
		}
	}
	return used, true
}
