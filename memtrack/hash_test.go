package memtrack_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"flash/memtrack"
	"flash/memtrack/memtest"
)

func TestBaselineDecidesWhatTheFirstCutReports(t *testing.T) {
	for baseline, want := range map[memtrack.Baseline][]uint64{
		memtrack.Unknown: {0, 1, 2, 3, 4, 5, 6, 7},
		memtrack.Zeroed:  {2, 5},
		memtrack.Same:    {5},
	} {
		b := memtrack.NewBuffer(8 * page)
		write(t, b, []uint64{2}, 1)
		tracker := memtrack.NewHashTracker(baseline, 1)
		if err := tracker.Start(b); err != nil {
			t.Fatal(err)
		}
		write(t, b, []uint64{5}, 1)
		mustCut(t, tracker, want...).Commit()
		mustCut(t, tracker).Commit()
	}
}

func TestTrackingByHashesBringsNoAbsentPageIn(t *testing.T) {
	src := memtest.NewSource(256, 0.2, 1)
	b := memtrack.NewLazyBuffer(src)
	tracker := memtrack.NewHashTracker(memtrack.Same, 1)
	if err := tracker.Start(b); err != nil {
		t.Fatal(err)
	}
	mustCut(t, tracker).Commit()
	if n := len(b.Touched()); n != 0 {
		t.Errorf("%d pages came in", n)
	}
	write(t, b, []uint64{9}, 1)
	mustCut(t, tracker, 9).Commit()
	got := make([]byte, page)
	if err := b.View(t.Context(), []uint64{9}, got); err != nil || !slices.Equal(got[1:], src.Page(9)[1:]) {
		t.Error("a partly written page lost the rest of its bytes")
	}
}

func TestAbsentPageOfABufferIsAnErrorNotZeros(t *testing.T) {
	src := memtest.NewSource(16, 0, 1)
	away := errors.New("away")
	src.Fail(func(uint64) error { return away })
	b := memtrack.NewLazyBuffer(src)
	if _, err := b.ReadAt(make([]byte, 10), 3*page); !errors.Is(err, away) {
		t.Error(err)
	}
	if err := b.View(t.Context(), []uint64{3}, make([]byte, page)); !errors.Is(err, away) {
		t.Error(err)
	}
	src.Fail(nil)
	got := make([]byte, 2*page)
	if _, err := b.ReadAt(got, 3*page+100); err != nil || !slices.Equal(got[:page], append(slices.Clone(src.Page(3)[100:]), src.Page(4)[:100]...)) {
		t.Error("other bytes than the source's", err)
	}
}

// The same writes, one tracker that sees them and one that compares: the second may report more, never less.
func TestHashesMissNothing(t *testing.T) {
	const seed = 42
	r := rand.New(rand.NewPCG(seed, seed))
	b := memtrack.NewBuffer(512 * page)
	seen, compared := &memtrack.BufferTracker{}, memtrack.NewHashTracker(memtrack.Zeroed, r.Uint64())
	for _, tracker := range []memtrack.Tracker{seen, compared} {
		if err := tracker.Start(b); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 100 {
		for range r.IntN(40) {
			if _, err := b.WriteAt([]byte{byte(r.Uint32() | 1)}, r.Int64N(512*page)); err != nil {
				t.Fatal(err)
			}
		}
		a, err := seen.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := compared.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		saw, got := slices.Collect(a.Slots()), slices.Collect(c.Slots())
		for _, p := range got {
			if !slices.Contains(saw, p) {
				t.Errorf("round %d: page %d reported, not written", round, p)
			}
		}
		for _, p := range saw { // reported, or written with what it held
			if !slices.Contains(got, p) {
				t.Logf("round %d: page %d written with what it held", round, p)
			}
		}
		if r.IntN(2) == 0 {
			a.Rollback()
			c.Rollback()
		} else {
			a.Commit()
			c.Commit()
		}
	}
}
