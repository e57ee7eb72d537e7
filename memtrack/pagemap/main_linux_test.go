package pagemap

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
	"flash/memtrack/uffd"
)

func TestMain(m *testing.M) {
	memtest.Main()
	os.Exit(m.Run())
}

// ways gives the trackers that work here, ready to be started on a child's memory.
func ways(t *testing.T, each func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), exact bool)) {
	t.Run("pagemap-scan", func(t *testing.T) {
		s, _ := uffd.Probe()
		if err := Probe(); err != nil || !s.Inject {
			t.Skip(err)
		}
		each(t, func(b memtrack.Baseline) memtrack.Tracker { return NewScan(b) }, func(s memtrack.Span) {
			if err := uffd.Protect(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}, true)
	})
	t.Run("soft-dirty", func(t *testing.T) {
		if err := ProbeSoftDirty(); err != nil {
			t.Skip(err)
		}
		each(t, func(b memtrack.Baseline) memtrack.Tracker { return NewSoftDirty(b) }, func(memtrack.Span) {}, false)
	})
}

// reports checks a cut: everything wanted, and nothing else where the way is exact.
func reports(t *testing.T, tracker memtrack.Tracker, exact bool, want ...uint64) *memtrack.Delta {
	t.Helper()
	d, err := tracker.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Collect(d.Slots())
	if len(memtrack.Union(got, want)) != len(got) || exact && len(got) != len(want) {
		t.Errorf("reported %v, want %v", got, want)
	}
	if len(got) > 1100 { // a huge page or two, where private memory gets any
		t.Errorf("%d pages reported", len(got))
	}
	return d
}

func TestBootedMemoryIsTrackedFromWhatItHolds(t *testing.T) {
	ways(t, func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), exact bool) {
		for name, shared := range map[string]bool{"shared": true, "private": false} {
			t.Run(name, func(t *testing.T) {
				c := memtest.Start(t, 4096, shared)
				c.Write(t, 10, 2, 1)
				c.Read(t, 20, 2)
				tracker, m := make(memtrack.Zeroed), memtrack.NewProcess(c.Span())
				ready(c.Span())
				if err := tracker.Start(m); err != nil {
					t.Fatal(err)
				}
				c.Write(t, 3000, 2, 1)
				c.Read(t, 100, 200)
				want := []uint64{10, 11, 3000, 3001}
				if shared { // a read of shared memory allocates; it can't be told from a write later
					want = []uint64{10, 11, 20, 21, 3000, 3001}
				}
				reports(t, tracker, exact, want...).Commit()
				reports(t, tracker, exact).Commit()
				c.Write(t, 11, 1, 2)
				c.Write(t, 200, 1, 2)
				c.Read(t, 3000, 90)
				d := reports(t, tracker, exact, 11, 200)
				if _, err := tracker.Cut(t.Context()); !errors.Is(err, memtrack.ErrDeltaOpen) {
					t.Error(err)
				}
				d.Rollback()
				c.Write(t, 201, 1, 2)
				if n, err := tracker.Pending(t.Context()); err != nil || n < 3 || exact && n != 3 {
					t.Errorf("%d pending, %v", n, err)
				}
				reports(t, tracker, exact, 11, 200, 201).Commit()
				if err := tracker.Stop(); err != nil {
					t.Fatal(err)
				}
				if _, err := tracker.Cut(t.Context()); !errors.Is(err, memtrack.ErrEnded) {
					t.Error(err)
				}
			})
		}
	})
}

func TestUnknownBaselineReportsEverything(t *testing.T) {
	ways(t, func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), exact bool) {
		c := memtest.Start(t, 64, true)
		tracker := make(memtrack.Unknown)
		ready(c.Span())
		if err := tracker.Start(memtrack.NewProcess(c.Span())); err != nil {
			t.Fatal(err)
		}
		d, err := tracker.Cut(t.Context())
		if err != nil || d.Len() != 64 {
			t.Fatal(d.Len(), err)
		}
		d.Commit()
	})
}

// Memory that isn't registered reports nothing by itself; that must be an error (I7).
func TestMemoryThatIsNotProtectedIsRefused(t *testing.T) {
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	c := memtest.Start(t, 64, true)
	err := NewScan(memtrack.Zeroed).Start(memtrack.NewProcess(c.Span()))
	if err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("unprotected memory: %v", err)
	}
}

func TestEndedProcessIsAnErrorNotAnEmptyDelta(t *testing.T) {
	ways(t, func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), exact bool) {
		c := memtest.Start(t, 64, true)
		tracker := make(memtrack.Zeroed)
		ready(c.Span())
		if err := tracker.Start(memtrack.NewProcess(c.Span())); err != nil {
			t.Fatal(err)
		}
		c.Kill()
		if d, err := tracker.Cut(t.Context()); err == nil {
			t.Errorf("cut of %d pages", d.Len())
		} else {
			t.Log(err)
		}
		if n, err := tracker.Pending(t.Context()); err == nil {
			t.Errorf("%d pending", n)
		}
		if err := tracker.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// More separate pages than fit into one answer of the kernel.
func TestScanGoesOnWhereTheKernelStopped(t *testing.T) {
	ways(t, func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), exact bool) {
		const pages = 20000
		c := memtest.Start(t, pages, true)
		tracker := make(memtrack.Zeroed)
		ready(c.Span())
		if err := tracker.Start(memtrack.NewProcess(c.Span())); err != nil {
			t.Fatal(err)
		}
		replies := []<-chan string{}
		var want []uint64
		for p := uint64(0); p < pages; p += 2 {
			want = append(want, p)
			replies = append(replies, c.Begin("write", p, 1, 1))
		}
		for _, r := range replies {
			<-r
		}
		d, err := tracker.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Collect(d.Slots())
		if len(memtrack.Union(got, want)) != len(got) || exact && len(got) != len(want) || !slices.IsSorted(got) {
			t.Errorf("%d pages, want %d", len(got), len(want))
		}
		d.Commit()
	})
}

// A process that isn't paused, contrary to the contract, writes while cuts are taken; what is put together from them is what
// it holds in the end. With soft-dirty that needs the process to stand still between reading the bits and clearing them.
func TestNoWriteIsMissedHoweverItMeetsACut(t *testing.T) {
	ways(t, func(t *testing.T, make func(memtrack.Baseline) memtrack.Tracker, ready func(memtrack.Span), _ bool) {
		const pages = 4096
		c := memtest.Start(t, pages, true)
		tracker := make(memtrack.Zeroed)
		ready(c.Span())
		m := memtrack.NewProcess(c.Span())
		if err := tracker.Start(m); err != nil {
			t.Fatal(err)
		}
		known := [pages][memtrack.PageBytes]byte{}
		take := func() int {
			d, err := tracker.Cut(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer d.Commit()
			for page := range d.Slots() {
				if err := d.ReadSlot(t.Context(), page, known[page][:]); err != nil {
					t.Fatal(err)
				}
			}
			return d.Len()
		}
		// Each page is written once, so that a missed write isn't mended by a later one.
		written := c.Begin("trickle", 0, pages, 0x77)
		busy := 0
		for running := true; running; {
			select {
			case <-written:
				running = false
			default:
			}
			if take() > 0 {
				busy++
			}
		}
		if busy < 3 {
			t.Errorf("only %d cuts met writes: the test sees little", busy)
		}
		t.Logf("%d cuts met writes", busy)
		view, all := [memtrack.PageBytes]byte{}, uint64(pages)
		missed := 0
		for page := range all {
			if err := m.View(t.Context(), []uint64{page}, view[:]); err != nil {
				t.Fatal(err)
			}
			if view != known[page] {
				missed++
			}
		}
		if missed > 0 {
			t.Errorf("%d of %d writes are in no cut", missed, pages)
		}
	})
}
