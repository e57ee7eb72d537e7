package uffd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flash/memtrack/memtest"
)

// nonZeroPage gives a page that isn't zero, from first on.
func nonZeroPage(src *memtest.Source, first uint64) uint64 {
	for zero, _ := src.IsZero(nil, first); zero; zero, _ = src.IsZero(nil, first) {
		first++
	}
	return first
}

func TestSourceErrorStallsTheGuestAndThenItGoesOn(t *testing.T) {
	need(t, false)
	src := memtest.NewSource(256, 0, 1)
	c, p := open(t, newBase(t, src), Options{})
	failures := make(chan struct{}, 1000)
	src.Fail(func(page uint64) error {
		if page != 7 {
			return nil
		}
		failures <- struct{}{}
		return errors.New("the network is away")
	})
	reply := c.Begin("read", 7, 1, 0)
	for range 3 {
		<-failures
	}
	for page := uint64(8); page < 64; page++ { // one page that fails holds up no other
		if c.Read(t, page, 1) != memtest.HashPages(src.Page(page)) {
			t.Fatalf("page %d isn't the snapshot's", page)
		}
	}
	select {
	case r := <-reply:
		t.Fatalf("a page that can't be had was read as %s", r)
	default:
	}
	src.Fail(nil)
	if r := <-reply; r != memtest.HashPages(src.Page(7)) {
		t.Errorf("the guest went on with %s", r)
	}
	select {
	case err := <-p.Lost():
		t.Errorf("a passing error was reported as a loss: %v", err)
	default:
	}
}

type forGood struct{ error }

func (forGood) Permanent() bool { return true }

func TestPageLostForGoodIsReportedAndNeverReadAsZero(t *testing.T) {
	need(t, false)
	for name, way := range map[string]struct {
		fail   error
		giveUp time.Duration
	}{
		"permanent": {fmt.Errorf("wrapped: %w", forGood{errors.New("chunk is corrupt")}), time.Hour},
		"limit":     {errors.New("the network is away"), 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			fail := way.fail
			src := memtest.NewSource(256, 0, 2)
			c, p := open(t, newBase(t, src), Options{GiveUp: way.giveUp})
			src.Fail(func(uint64) error { return fail })
			reply := c.Begin("read", 7, 1, 0)
			var err error
			select {
			case err = <-p.Lost():
			case <-time.After(10 * time.Second):
				t.Fatal("the loss isn't reported")
			}
			if !errors.Is(err, fail) || !strings.Contains(err.Error(), "page 7") {
				t.Errorf("the loss is reported as %v", err)
			}
			select {
			case r := <-reply:
				t.Errorf("the page was read as %s", r)
			default:
			}
			eventually(t, "the guest waits", c.WaitsForPage)
		})
	}
}

// The machine's own descriptor keeps the memory registered when ours is gone; whoever fetches it again goes on serving.
func TestGuestWaitsWhenItsServerDiesAndGoesOnWithTheNext(t *testing.T) {
	need(t, false)
	src := memtest.NewSource(256, 0.3, 3)
	base := newBase(t, src)
	c, p := open(t, base, Options{})
	c.Read(t, 0, 1)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	page := nonZeroPage(src, 100)
	reply := c.Begin("read", page, 1, 0)
	eventually(t, "a guest without a server waits", c.WaitsForPage)
	select {
	case r := <-reply:
		t.Fatalf("without a server the page was read as %s", r)
	default:
	}
	fd, err := fetch(c.Span().PID, userfaultfdOf(t, c.Span().PID))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := base.Fill(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	if err := wake(fd, c.Span().Address(page)); err != nil {
		t.Fatal(err)
	}
	if r := <-reply; r != memtest.HashPages(src.Page(page)) {
		t.Errorf("the guest went on with %s", r)
	}
}

func userfaultfdOf(t *testing.T, pid int) int {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if target, _ := os.Readlink(path); strings.Contains(target, "userfaultfd") {
			n, err := strconv.Atoi(filepath.Base(path))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the machine has no userfaultfd")
	return 0
}

func TestPagersLeaveNoGoroutineThreadOrDescriptorBehind(t *testing.T) {
	need(t, false)
	src := memtest.NewSource(256, 0, 4)
	src.Fail(func(page uint64) error {
		if page == 9 {
			return errors.New("away")
		}
		return nil
	})
	base := newBase(t, src)
	cycle := func() {
		c := memtest.Start(t, 256, true)
		p, err := Open(t.Context(), c.Span(), base, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.Read(t, 0, 8)
		c.Begin("read", 9, 1, 0)
		eventually(t, "page 9 fails", func() bool { return slices.Contains(p.Touched(), 9) })
		c.Kill()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("ending twice: %v", err)
		}
	}
	cycle()
	before, descriptors := runtime.NumGoroutine(), countDescriptors(t)
	for range 5 {
		cycle()
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	if now := countDescriptors(t); now > descriptors {
		t.Errorf("%d descriptors, before %d", now, descriptors)
	}
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestBaseClosedUnderAFillIsAnErrorNotAnotherFile(t *testing.T) {
	src := memtest.NewSource(16, 0, 5)
	b, err := NewBase(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Fill(t.Context(), 1); err == nil {
		t.Error("a closed base was filled")
	}
	if err := b.Prefetch(t.Context(), []uint64{1}); err == nil {
		t.Error("a closed base was filled")
	}
}

func TestOneReadServesAllWhoWantAPageAtOnce(t *testing.T) {
	src := memtest.NewSource(16, 0, 6)
	b := newBase(t, src)
	inside, goOn := make(chan struct{}), make(chan struct{})
	src.Fail(func(uint64) error {
		inside <- struct{}{}
		<-goOn
		return nil
	})
	results := make(chan error, 5)
	fill := func() { results <- b.Fill(t.Context(), 3) }
	go fill()
	<-inside
	for range 4 {
		go fill()
	}
	close(goOn)
	for range 5 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := src.Reads.Load(); n != 1 {
		t.Errorf("%d reads", n)
	}
}
