package store

import (
	"errors"
	"testing"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas/castest"
)

// counted fails the test unless every VM's record counts the checkpoints it has.
func counted(t testing.TB, s *Store, want map[string]int) {
	t.Helper()
	vms, err := s.VMs(t.Context())
	if err != nil || len(vms) != len(want) {
		t.Fatalf("%d VMs, %v", len(vms), err)
	}
	for _, v := range vms {
		own := 0
		history, err := s.History(t.Context(), v.ID)
		for _, c := range history {
			if c.From == nil {
				own++
			}
		}
		if err != nil || v.Checkpoints != own || own != want[v.ID] {
			t.Errorf("%s counts %d checkpoints and has %d, %v; want %d", v.ID, v.Checkpoints, own, err, want[v.ID])
		}
	}
}

func TestTheRecordCountsTheCheckpoints(t *testing.T) {
	ctx := t.Context()
	dir, m := t.TempDir(), castest.NewMemory()
	s := reopen(t, dir, m)
	busyVM(t, s)
	counted(t, s, map[string]int{"a": 5, "child": 0})
	checkpoint(t, s, "child", memBytes, delta{1: page(1)})
	counted(t, s, map[string]int{"a": 5, "child": 1})
	if err := s.RemoveCheckpoints(ctx, "a", []int{3, 4}, "test"); err != nil {
		t.Fatal(err)
	}
	counted(t, s, map[string]int{"a": 3, "child": 1})
	s.beforeCommit = func() error { return errors.New("no") }
	if _, err := tryCheckpoint(s, "a", memBytes, delta{1: page(2)}); err == nil {
		t.Fatal("it was committed")
	}
	if err := s.RemoveCheckpoints(ctx, "a", []int{2}, "test"); err == nil {
		t.Fatal("it was removed")
	}
	s.beforeCommit = nil
	counted(t, s, map[string]int{"a": 3, "child": 1})
	// Without a count, as a version before this one wrote it.
	if err := s.update(ctx, func(tx *badger.Txn) error {
		r, err := getVM(tx, "a")
		r.Count = nil
		return errors.Join(err, putJSON(tx, vmKey("a"), r))
	}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = reopen(t, dir, m)
	counted(t, s, map[string]int{"a": 3, "child": 1})
	if r, err := s.Check(ctx, CheckOptions{}); err != nil || len(r.Findings) > 0 {
		t.Fatalf("%v, %+v", err, r.Findings)
	}
	if err := s.changeVM(ctx, "a", func(_ *badger.Txn, r *vmRecord) error { r.add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Check(ctx, CheckOptions{}); err != nil || r.Worst != Damage {
		t.Fatalf("a wrong count: %v, %+v", err, r.Findings)
	}
}
