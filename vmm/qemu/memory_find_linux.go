package qemu

import (
	"fmt"
	"strings"

	"flash/memtrack"
)

// ramName is how the kernel names the memory of a memory-backend-memfd.
const ramName = "/memfd:memory-backend-memfd"

// findRAM finds the RAM of a QEMU process among its mappings. It is one stretch of addresses even where guest-physical
// memory has a hole below 4 GiB, so pages are numbered by their place in the backend. QEMU may have given parts of it
// different advice, which makes several mappings of one file.
func findRAM(pid int, bytes uint64) (memtrack.Span, memtrack.Mapping, error) {
	all, err := memtrack.Mappings(pid)
	if err != nil {
		return memtrack.Span{}, memtrack.Mapping{}, fmt.Errorf("find the RAM of process %d: %w", pid, err)
	}
	var seen []string
	for i := 0; i < len(all); {
		first, end := all[i], all[i].End
		next := i + 1
		for next < len(all) && all[next].Continues(first, end) {
			end = all[next].End
			next++
		}
		i = next
		if !strings.HasPrefix(first.Name, ramName) {
			continue
		}
		if first.Shared && first.Offset == 0 && end-first.Start == bytes {
			return memtrack.Span{PID: pid, Start: first.Start, End: end}, first, nil
		}
		seen = append(seen, fmt.Sprintf("%d bytes at %x (shared: %t)", end-first.Start, first.Start, first.Shared))
	}
	return memtrack.Span{}, memtrack.Mapping{}, fmt.Errorf("find the RAM of process %d: it has no shared %s of %d bytes; it has %d: %s",
		pid, ramName, bytes, len(seen), strings.Join(seen, ", "))
}
