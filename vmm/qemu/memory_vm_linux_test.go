package qemu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"flash/memtrack"
	"flash/vmm"
)

// A guest's memory above 2.75 or 3.5 GiB lies above 4 GiB for the guest, but not in the process. All of it is compared with
// what the cut reports, device writes included.
func TestNoWrittenPageIsMissedOnEitherSideOfTheHole(t *testing.T) {
	if !strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Skip("a guest with 5 GiB takes a minute to boot; FLASH_REQUIRE=vm boots it")
	}
	const gib = 1 << 30 / memtrack.PageBytes
	s := testSpec(t)
	s.MemBytes = 5 << 30
	g := boot(t, testEngine(t, Config{PoolSize: -1}), s, vmm.Attach{})
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	first, err := g.Tracker().Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("first cut: %d pages in %v", first.Len(), time.Since(began))
	touched := slices.Collect(first.Slots())
	first.Commit()
	if low, high := touched[0], touched[len(touched)-1]; low > gib || high < 4*gib {
		t.Errorf("pages %d to %d are written, want some on both sides of the hole", low, high)
	}
	oracle := memtrack.NewHashTracker(memtrack.Same, 1)
	if err := oracle.Start(g.Memory()); err != nil {
		t.Fatal(err)
	}
	n := 1
	for round := range 3 {
		if err := g.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			n++
			g.wants(fmt.Sprint("work ", n), count(n)+fmt.Sprintf(" %d", n))
		}
		if err := g.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		d, err := g.Tracker().Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		reported := slices.Collect(d.Slots())
		changed, err := oracle.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		missed := 0
		for page := range changed.Slots() {
			if _, found := slices.BinarySearch(reported, page); !found {
				missed++
			}
		}
		t.Logf("round %d: cut of %d pages in %v; %d changed, %d missed", round, d.Len(), took, changed.Len(), missed)
		if missed > 0 || changed.Len() == 0 {
			t.Errorf("round %d: %d of %d changed pages missed", round, missed, changed.Len())
		}
		d.Commit()
		changed.Commit()
	}
}
