package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// hourly is a history of one checkpoint each twenty minutes, oldest first, ending at now.
func hourly(n int, now time.Time) []Checkpoint {
	var h []Checkpoint
	for i := range n {
		h = append(h, Checkpoint{Number: i + 1, Parent: i, Created: now.Add(-time.Duration(n-1-i) * 20 * time.Minute), NewBytes: 10})
	}
	return h
}

func TestRetentionKeepsWhatAnyRuleWants(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 10, 0, 0, time.UTC)
	h := hourly(300, now) // 100 hours
	never := func(*Checkpoint) bool { return false }
	left := func(r Retention) []int {
		goes := r.chooses(h, now, never)
		var kept []int
		for _, c := range h {
			if !slices.ContainsFunc(goes, func(g Checkpoint) bool { return g.Number == c.Number }) {
				kept = append(kept, c.Number)
			}
		}
		return kept
	}
	for _, tc := range []struct {
		r    Retention
		want []int
	}{
		{Retention{KeepLast: 3}, []int{298, 299, 300}},
		{Retention{KeepHourly: 3}, []int{296, 299, 300}}, // 10:50 11:50 12:10
		{Retention{KeepDaily: 2}, []int{263, 300}},       // 23:50 of the day before
		{Retention{KeepLast: 2, KeepDaily: 2}, []int{263, 299, 300}},
		{Retention{OlderThanSeconds: 3600 + 1}, []int{297, 298, 299, 300}},
		{Retention{MaxBytes: 45}, []int{297, 298, 299, 300}},
		{Retention{KeepLast: 9, MaxBytes: 20}, []int{299, 300}},
	} {
		if got := left(tc.r); !slices.Equal(got, tc.want) {
			t.Errorf("%+v keeps %v, want %v", tc.r, got, tc.want)
		}
	}
	if got := left(Retention{}); len(got) != 300 {
		t.Errorf("no rule keeps %d", len(got))
	}
	if got := left(Retention{KeepLast: 1, OlderThanSeconds: 2*3600 + 1}); len(got) != 7 {
		t.Errorf("age protects %d", len(got))
	}
}

func TestHeadPinsAndForkPointsNeverGo(t *testing.T) {
	ctx := context.Background()
	s, _ := packed(t, t.TempDir(), nil)
	newVM(t, s, "vm")
	for k := range 8 {
		checkpoint(t, s, "vm", memBytes, delta{0: page(uint64(k))})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.SetPinned(ctx, "vm", 2, true))
	must(s.CreateVM(ctx, VM{ID: "child"}, &ForkPoint{"vm", 4}))
	must(s.MoveHead(ctx, "vm", 6, "rewind"))
	must(s.SetRetention(ctx, "", &Retention{KeepLast: 1}))
	for _, n := range []int{2, 4, 6} {
		if err := s.RemoveCheckpoints(ctx, "vm", []int{1, n}, "test"); !errors.Is(err, ErrInUse) {
			t.Errorf("remove %d: %v", n, err)
		}
	}
	if err := s.RemoveCheckpoints(ctx, "child", []int{0}, "test"); !errors.Is(err, ErrInUse) {
		t.Errorf("remove the fork point: %v", err)
	}
	if err := s.RemoveCheckpoints(ctx, "vm", []int{99}, "test"); !errors.Is(err, ErrNotFound) {
		t.Errorf("remove none: %v", err)
	}
	r := gc(t, s, GCOptions{Apply: true})
	h, err := s.History(ctx, "vm")
	must(err)
	got := ""
	for _, c := range h {
		got += fmt.Sprintf("%d←%d ", c.Parent, c.Number)
	}
	if got != "-1←2 2←4 4←6 6←8 " || len(r.Removed) != 4 {
		t.Errorf("%s, %d removed", got, len(r.Removed))
	}
	if _, err := s.Ledger(ctx, "vm"); err != nil {
		t.Error(err)
	}
	must(s.SetRetention(ctx, "vm", &Retention{KeepLast: 10})) // its own
	if r := gc(t, s, GCOptions{}); len(r.Removed) != 0 {
		t.Errorf("%+v", r.Removed)
	}
	must(s.DeleteVM(ctx, "vm"))
	if rules, err := s.Retentions(ctx); err != nil || len(rules) != 1 {
		t.Errorf("%v, %v", rules, err)
	}
}
