package uffd

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"flash/memtrack"
	"flash/memtrack/memtest"
	"flash/memtrack/pagemap"
)

func TestMain(m *testing.M) {
	memtest.Main()
	os.Exit(m.Run())
}

// need skips where the kernel can't.
func need(t testing.TB, async bool) {
	t.Helper()
	s, reasons := Probe()
	if !s.Missing || !s.Inject || async && !s.Async {
		t.Skip(reasons)
	}
}

func newBase(t testing.TB, src memtrack.Source) *Base {
	t.Helper()
	b, err := NewBase(src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if os.Getenv(sabotageVariable) == "zero-fill" {
		b.src = unfetched{src}
	}
	return b
}

// open attaches a new child to base; the child dies before the pager ends, as an engine does it.
func open(t testing.TB, base *Base, o Options) (*memtest.Child, *Pager) {
	t.Helper()
	c := memtest.Start(t, int(base.Pages()), true)
	p, err := Open(t.Context(), c.Span(), base, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, p
}

func startScan(t testing.TB, m memtrack.Memory) *pagemap.Scan {
	t.Helper()
	tracker := pagemap.NewScan(memtrack.Same)
	if err := tracker.Start(m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tracker.Stop() })
	return tracker
}

// cut takes the changed pages and commits them.
func cut(t testing.TB, tracker memtrack.Tracker) []uint64 {
	t.Helper()
	d, err := tracker.Cut(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Commit()
	return slices.Collect(d.Slots())
}

// eventually waits for a state of another process or thread, which sends no message.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
