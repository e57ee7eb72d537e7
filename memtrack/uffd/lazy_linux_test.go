package uffd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func TestAbsentPagesAreNeverZero(t *testing.T) {
	need(t, false)
	src := memtest.NewSource(2048, 0.4, 1)
	c, p := open(t, newBase(t, src), Options{})
	for page := range src.Slots() {
		if got, want := c.Read(t, page, 1), memtest.HashPages(src.Page(page)); got != want {
			t.Fatalf("page %d read as %s, want %s", page, got, want)
		}
	}
	if touched := p.Touched(); len(touched) < 1000 || touched[0] != 0 || !slices.IsSorted(touched) {
		t.Errorf("%d pages touched, not in order", len(touched))
	}
}

// The machine's process needs no privilege, no file of ours and no user of ours, and keeps no descriptor it was lent.
func TestAProcessWithoutPrivilegeIsServed(t *testing.T) {
	need(t, false)
	if s, why := Probe(); !s.Others || os.Geteuid() != 0 {
		t.Skipf("not root, or %v", why)
	}
	src := memtest.NewSource(256, 0.4, 9)
	c := memtest.StartAs(t, 256, true, &syscall.Credential{Uid: 0x70000001, Gid: 0x70000001})
	base := newBase(t, src)
	p, err := Open(t.Context(), c.Span(), base, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		p.Close()
	})
	for page := range src.Slots() {
		if got, want := c.Read(t, page, 1), memtest.HashPages(src.Page(page)); got != want {
			t.Fatalf("page %d read as %s, want %s", page, got, want)
		}
	}
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Span().PID))
	userfaultfds := 0
	for _, path := range paths {
		switch to, _ := os.Readlink(path); {
		case to == "anon_inode:[userfaultfd]":
			userfaultfds++
		case to == devicePath, strings.Contains(to, "flash-base"), strings.HasPrefix(to, "socket:"):
			t.Errorf("it still holds %s", to)
		}
	}
	if userfaultfds != 1 {
		t.Errorf("it holds %d userfaultfds", userfaultfds)
	}
}

func TestCheckpointRightAfterLazyRestoreIsEmptyAndExact(t *testing.T) {
	need(t, true)
	src := memtest.NewSource(1024, 0.3, 2)
	_, p := open(t, newBase(t, src), Options{Protect: true})
	tracker := startScan(t, p.Memory())
	if pages := cut(t, tracker); len(pages) != 0 {
		t.Errorf("an untouched machine changed pages %v", pages)
	}
	view := make([]byte, memtrack.PageBytes)
	for page := range src.Slots() {
		if err := p.Memory().View(t.Context(), []uint64{page}, view); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(view, src.Page(page)) {
			t.Fatalf("page %d isn't the snapshot's", page)
		}
	}
	if pages := cut(t, tracker); len(pages) != 0 {
		t.Errorf("reading memory changed pages %v", pages)
	}
}

// Also with a collector that runs all the time: the kernel is given addresses.
func TestEveryWriteAndNoReadIsReported(t *testing.T) {
	need(t, true)
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	const seed = 3
	src := memtest.NewSource(4096, 0.3, seed)
	c, p := open(t, newBase(t, src), Options{Protect: true})
	tracker := startScan(t, p.Memory())
	r := rand.New(rand.NewPCG(seed, 2))
	model := map[uint64][]byte{}
	for round := range 8 {
		want := map[uint64]bool{}
		for range 150 {
			first, count := r.Uint64N(src.Slots()-8), 1+r.Uint64N(8)
			if r.IntN(3) == 0 {
				c.Write(t, first, count, byte(round+1))
				for page := first; page < first+count; page++ {
					want[page] = true
					if model[page] == nil {
						model[page] = slices.Clone(src.Page(page))
					}
					model[page][memtest.WrittenByte] = byte(round + 1)
				}
			} else {
				c.Read(t, first, count)
			}
		}
		n, err := tracker.Pending(t.Context())
		if err != nil || n != len(want) {
			t.Errorf("round %d: %d pages pending, %v, want %d", round, n, err, len(want))
		}
		d, err := tracker.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Write(t, 0, 1, 0xee) // after the cut: not in it
		data := make([]byte, memtrack.PageBytes)
		for page := range d.Slots() {
			if !want[page] {
				t.Errorf("round %d: page %d reported though only read", round, page)
			}
			delete(want, page)
			if err := d.ReadSlot(t.Context(), page, data); err != nil || model[page] != nil && !bytes.Equal(data, model[page]) {
				t.Errorf("round %d: page %d holds something else than at the cut (%v)", round, page, err)
			}
		}
		for page := range want {
			t.Errorf("round %d: page %d written and missed", round, page)
		}
		d.Commit()
		if model[0] == nil {
			model[0] = slices.Clone(src.Page(0))
		}
		model[0][memtest.WrittenByte] = 0xee
		if pages := cut(t, tracker); !slices.Equal(pages, []uint64{0}) {
			t.Errorf("round %d: after the cut pages %v, want [0]", round, pages)
		}
	}
}

func TestMachinesOfOneBaseSharePagesButNotWrites(t *testing.T) {
	need(t, true)
	src := memtest.NewSource(1024, 0.3, 4)
	base := newBase(t, src)
	first, firstPager := open(t, base, Options{Protect: true})
	first.Write(t, 0, 512, 0x77)
	first.Read(t, 512, 512)
	reads := src.Reads.Load()
	second, secondPager := open(t, base, Options{Protect: true})
	for page := range src.Slots() {
		if second.Read(t, page, 1) != memtest.HashPages(src.Page(page)) {
			t.Fatalf("page %d of the second machine isn't the snapshot's", page)
		}
	}
	if secondPager.Faults() != 0 || src.Reads.Load() != reads {
		t.Errorf("the second machine made %d faults (the first %d), %d reads", secondPager.Faults(), firstPager.Faults(), src.Reads.Load()-reads)
	}
	second.Write(t, 100, 1, 0x11)
	view := make([]byte, memtrack.PageBytes)
	if err := firstPager.Memory().View(t.Context(), []uint64{100}, view); err != nil || view[memtest.WrittenByte] != 0x77 {
		t.Errorf("the first machine sees %#x, %v", view[memtest.WrittenByte], err)
	}
}

func TestPrefetchedPagesMakeNoFaultsAndAreNotChanged(t *testing.T) {
	need(t, true)
	src := memtest.NewSource(2048, 0.5, 5)
	base := newBase(t, src)
	c, p := open(t, base, Options{Protect: true})
	tracker := startScan(t, p.Memory())
	var pages []uint64
	for page := src.Slots(); page > 0; page-- { // not in ascending order, and some twice
		pages = append(pages, page-1, page/2)
	}
	if err := base.Prefetch(context.Background(), pages); err != nil {
		t.Fatal(err)
	}
	for page := range src.Slots() {
		if c.Read(t, page, 1) != memtest.HashPages(src.Page(page)) {
			t.Fatalf("page %d isn't the snapshot's", page)
		}
	}
	if p.Faults() != 0 {
		t.Errorf("%d faults", p.Faults())
	}
	if changed := cut(t, tracker); len(changed) != 0 {
		t.Errorf("prefetching changed pages %v", changed)
	}
}

func TestTouchingFreshMemoryFillsItInRuns(t *testing.T) {
	need(t, false)
	src := memtest.NewSource(1024, 1, 6)
	c, p := open(t, newBase(t, src), Options{})
	c.Write(t, 0, 1024, 9)
	// A signal can make the child try again while a run is half there, and fault on the rest of it.
	if n := p.Faults(); n > 2*1024/zeroWindowPages {
		t.Errorf("%d pages faulted of %d", n, 1024)
	}
}

func TestWhatLiesAroundATouchedPageComesWithIt(t *testing.T) {
	need(t, true)
	src := memtest.NewSource(1024, 0, 7)
	src.Fail(func(page uint64) error {
		if page == 5 {
			return errors.New("this page can't be read")
		}
		return nil
	})
	base := newBase(t, src)
	c, p := open(t, base, Options{Protect: true})
	read := func(page uint64) {
		if c.Read(t, page, 1) != memtest.HashPages(src.Page(page)) {
			t.Fatalf("page %d isn't the snapshot's", page)
		}
	}
	read(aroundPages + 3)
	eventually(t, "its window is there", func() bool { return base.Filled() == aroundPages })
	for page := uint64(aroundPages); page < 2*aroundPages; page += 2 {
		read(page)
	}
	if n := p.Faults(); n != 1 {
		t.Errorf("%d faults, want the first alone", n)
	}
	// Told are the pages that were used, whatever else came in.
	want := []uint64{19, 16, 18, 20, 22, 24, 26, 28, 30}
	if got := p.Touched(); !slices.Equal(got, want) {
		t.Errorf("touched are %v, want %v", got, want)
	}
	// A page that can't be read is missed by nobody but who touches it.
	read(2)
	select {
	case err := <-p.Lost():
		t.Errorf("the neighbour of an unreadable page is lost: %v", err)
	default:
	}
}
