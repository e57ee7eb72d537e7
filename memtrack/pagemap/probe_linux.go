package pagemap

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

const probePages = 8

// Probe tries Scan on some pages of this process: nil when a page written is reported and a page read is not.
func Probe() error {
	mem, err := probeMemory()
	if err != nil {
		return fmt.Errorf("pagemap-scan: %w", err)
	}
	defer unix.Munmap(mem)
	fd, err := protectAsync(mem)
	if err != nil {
		return fmt.Errorf("pagemap-scan: %w", err)
	}
	defer unix.Close(fd)
	if err := tryTracker(NewScan(memtrack.Zeroed), mem, true); err != nil {
		return fmt.Errorf("pagemap-scan: %w", err)
	}
	return nil
}

// ProbeSoftDirty tries SoftDirty on some pages of this process, whose own soft-dirty bits are cleared by it: nil when a page
// written is reported and a page left alone is not.
func ProbeSoftDirty() error {
	mem, err := probeMemory()
	if err != nil {
		return fmt.Errorf("soft-dirty: %w", err)
	}
	defer unix.Munmap(mem)
	if err := tryTracker(NewSoftDirty(memtrack.Zeroed), mem, false); err != nil {
		return fmt.Errorf("soft-dirty: %w", err)
	}
	return nil
}

func probeMemory() ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, probePages*memtrack.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d pages: %w", probePages, err)
	}
	return mem, nil
}

// tryTracker writes pages 1 and 4, in all but the first cut after reading 2.
func tryTracker(t memtrack.Tracker, mem []byte, exact bool) error {
	ctx := context.Background()
	mem[7*memtrack.PageBytes] = 1 // written before Start
	m := memtrack.NewProcess(spanOf(os.Getpid(), mem))
	if err := t.Start(m); err != nil {
		return err
	}
	defer t.Stop()
	for round, want := range [][]uint64{{1, 4, 7}, {1, 4}, {1, 4}} {
		mem[1*memtrack.PageBytes]++
		mem[4*memtrack.PageBytes]++
		var one [memtrack.PageBytes]byte
		if err := m.View(ctx, []uint64{2}, one[:]); err != nil {
			return err
		}
		d, err := t.Cut(ctx)
		if err != nil {
			return err
		}
		got := []uint64{}
		for page := range d.Slots() {
			got = append(got, page)
		}
		d.Commit()
		missing := len(memtrack.Union(got, want)) != len(got)
		if missing || exact && len(got) != len(want) || !exact && len(got) == probePages {
			return fmt.Errorf("trial cut %d reported pages %v, want %v", round+1, got, want)
		}
	}
	return nil
}
