package memtrack_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func TestMain(m *testing.M) {
	memtest.Main()
	os.Exit(m.Run())
}

const page = memtrack.PageBytes

func write(t testing.TB, b *memtrack.Buffer, pages []uint64, value byte) {
	t.Helper()
	for _, p := range pages {
		if _, err := b.WriteAt([]byte{value}, int64(p*page)); err != nil {
			t.Fatal(err)
		}
	}
}

func mustCut(t testing.TB, tracker memtrack.Tracker, want ...uint64) *memtrack.Delta {
	t.Helper()
	d, err := tracker.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(d.Slots()); !slices.Equal(got, want) || d.Len() != len(want) {
		t.Fatalf("cut pages %v, want %v", got, want)
	}
	return d
}

func read(t testing.TB, d *memtrack.Delta, p uint64) byte {
	t.Helper()
	b := bytes.Repeat([]byte{0xaa}, page) // ReadSlot must fill it
	if err := d.ReadSlot(t.Context(), p, b); err != nil {
		t.Fatal(err)
	}
	return b[0]
}

// trackers are the ways that need no kernel.
func trackers(t *testing.T, each func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker)) {
	for _, tracker := range []memtrack.Tracker{&memtrack.BufferTracker{}, memtrack.NewHashTracker(memtrack.Zeroed, 1)} {
		t.Run(tracker.Name(), func(t *testing.T) {
			b := memtrack.NewBuffer(1024 * page)
			if err := tracker.Start(b); err != nil {
				t.Fatal(err)
			}
			each(t, b, tracker)
			if err := tracker.Stop(); err != nil {
				t.Fatal(err)
			}
			if _, err := tracker.Cut(t.Context()); !errors.Is(err, memtrack.ErrEnded) {
				t.Errorf("cut after stop: %v", err)
			}
		})
	}
}

func TestDeltaStaysAsItWasWhileTheMachineRunsOn(t *testing.T) {
	trackers(t, func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker) {
		write(t, b, []uint64{1000, 3, 4}, 1)
		d := mustCut(t, tracker, 3, 4, 1000)
		write(t, b, []uint64{3, 5}, 2)
		runtime.GC()
		if got := read(t, d, 3); got != 1 {
			t.Errorf("page 3 holds %d", got)
		}
		if err := d.ReadSlot(t.Context(), 5, make([]byte, page)); err == nil {
			t.Error("a page outside the delta was read")
		}
		d.Commit()
		d.Rollback() // ended already
		d = mustCut(t, tracker, 3, 5)
		if got := read(t, d, 3); got != 2 {
			t.Errorf("page 3 holds %d", got)
		}
		d.Commit()
		mustCut(t, tracker).Commit()
	})
}

func TestRolledBackPagesAreReportedAgainWithWhatTheyHoldThen(t *testing.T) {
	trackers(t, func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker) {
		write(t, b, []uint64{7, 9}, 1)
		d := mustCut(t, tracker, 7, 9)
		write(t, b, []uint64{8, 9}, 2)
		d.Rollback()
		if n, err := tracker.Pending(t.Context()); n != 3 || err != nil {
			t.Errorf("%d pages pending, %v", n, err)
		}
		d = mustCut(t, tracker, 7, 8, 9)
		if read(t, d, 7) != 1 || read(t, d, 9) != 2 {
			t.Error("old bytes")
		}
		d.Rollback()
		d.Commit() // ended already
		mustCut(t, tracker, 7, 8, 9).Commit()
	})
}

func TestOnlyOneDeltaIsOpen(t *testing.T) {
	trackers(t, func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker) {
		write(t, b, []uint64{1}, 1)
		d := mustCut(t, tracker, 1)
		write(t, b, []uint64{2}, 1)
		if _, err := tracker.Cut(t.Context()); !errors.Is(err, memtrack.ErrDeltaOpen) {
			t.Fatalf("second cut: %v", err)
		}
		d.Commit()
		mustCut(t, tracker, 2).Commit() // the refused cut took nothing
	})
}

func TestFailedCutLosesNothing(t *testing.T) {
	trackers(t, func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker) {
		write(t, b, []uint64{1, 2}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if d, err := tracker.Cut(ctx); err == nil {
			d.Rollback() // memory this small may be copied before ctx is looked at
		}
		mustCut(t, tracker, 1, 2).Commit()
	})
}

func TestEndedDeltaIsNotReadFromAReusedArena(t *testing.T) {
	trackers(t, func(t *testing.T, b *memtrack.Buffer, tracker memtrack.Tracker) {
		for round := range 50 {
			write(t, b, []uint64{1, 2, 3}, byte(round+1))
			d := mustCut(t, tracker, 1, 2, 3)
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					got := make([]byte, page)
					for {
						if err := d.ReadSlot(context.Background(), 2, got); err != nil {
							if !errors.Is(err, memtrack.ErrEnded) {
								t.Error(err)
							}
							return
						}
						if got[0] != byte(round+1) {
							t.Errorf("round %d: read %d", round, got[0])
							return
						}
					}
				})
			}
			d.Commit()
			readers.Wait()
		}
	})
}

func TestDeltaOutlivesItsTracker(t *testing.T) {
	b := memtrack.NewBuffer(16 * page)
	tracker := memtrack.NewHashTracker(memtrack.Zeroed, 1)
	if err := tracker.Start(b); err != nil {
		t.Fatal(err)
	}
	write(t, b, []uint64{1}, 9)
	d := mustCut(t, tracker, 1)
	if err := tracker.Stop(); err != nil {
		t.Fatal(err)
	}
	if read(t, d, 1) != 9 {
		t.Error("the delta changed")
	}
	d.Rollback()
}

// A booted machine's first cut: everything was written, nearly all of it with zeros.
func TestCutOfMoreThanAnArenaHoldsEveryPage(t *testing.T) {
	const pages = 40000
	b := memtrack.NewBuffer(pages * page)
	tracker := &memtrack.BufferTracker{}
	if err := tracker.Start(b); err != nil {
		t.Fatal(err)
	}
	all := make([]uint64, pages)
	for i := range all {
		all[i] = uint64(i)
	}
	write(t, b, all, 0)
	for i := uint64(0); i < pages; i++ {
		if i%3 == 0 || i > 16000 && i < 35000 { // more than an arena of them
			write(t, b, []uint64{i}, byte(i%251+1))
		}
	}
	d := mustCut(t, tracker, all...)
	write(t, b, all, 0xff)
	for i := uint64(0); i < pages; i++ {
		want := byte(0)
		if i%3 == 0 || i > 16000 && i < 35000 {
			want = byte(i%251 + 1)
		}
		if got := read(t, d, i); got != want {
			t.Fatalf("page %d holds %d, want %d", i, got, want)
		}
	}
	d.Rollback()
	mustCut(t, tracker, all...).Commit()
}
