package store

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas/castest"
)

func ledgerKinds(t testing.TB, s *Store, vm string) (kinds []string) {
	t.Helper()
	l, err := s.Ledger(context.Background(), vm)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestAForkBeginsWithItsForkPoint(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	bundle := putBundle(t, s, "b", []byte("kernel"))
	if err := s.CreateVM(ctx, VM{ID: "agent-1", Bundle: bundle, Spec: json.RawMessage(`{"a":1}`)}, nil); err != nil {
		t.Fatal(err)
	}
	v, err := s.VM(ctx, "agent-1")
	if err != nil || v.Head != -1 || v.Next != 1 || v.Bundle != bundle || string(v.Spec) != `{"a":1}` || v.Created.IsZero() {
		t.Fatalf("%+v, %v", v, err)
	}
	var at *Checkpoint
	for i := range 3 {
		at = checkpoint(t, s, "agent-1", memBytes, delta{0: page(uint64(i))})
	}
	if err := s.CreateVM(ctx, VM{ID: "child", Head: 77, Next: 99}, &ForkPoint{"agent-1", 3}); err != nil {
		t.Fatal(err)
	}
	if v, err = s.VM(ctx, "child"); err != nil || v.Head != 0 || v.Next != 1 || v.Bundle != bundle {
		t.Fatalf("%+v, %v", v, err)
	}
	h, err := s.History(ctx, "child")
	if err != nil || len(h) != 1 {
		t.Fatalf("%+v, %v", h, err)
	}
	want := Checkpoint{Number: 0, Parent: -1, Snapshot: at.Snapshot, Label: "fork of agent-1@3", Created: h[0].Created, From: &ForkPoint{"agent-1", 3}}
	if !reflect.DeepEqual(h[0], want) {
		t.Fatalf("fork point %+v, want %+v", h[0], want)
	}
	if c := checkpoint(t, s, "child", memBytes, delta{1: page(9)}); c.Number != 1 || c.Parent != 0 {
		t.Fatalf("the child's first checkpoint: %+v", c)
	}
	if k := ledgerKinds(t, s, "child"); !slices.Equal(k, []string{"fork_point", "checkpoint"}) {
		t.Errorf("the child's ledger: %v", k)
	}
	if k := ledgerKinds(t, s, "agent-1"); !slices.Equal(k, []string{"created", "checkpoint", "checkpoint", "checkpoint", "fork"}) {
		t.Errorf("the parent's ledger: %v", k)
	}
	if err := s.CreateVM(ctx, VM{ID: "grandchild"}, &ForkPoint{"child", 0}); err != nil {
		t.Errorf("fork of a fork point: %v", err)
	}
	for id, c := range map[string]struct {
		from *ForkPoint
		want error
	}{
		"child": {nil, ErrExists}, "x": {&ForkPoint{"absent", 1}, ErrNotFound}, "y": {&ForkPoint{"agent-1", 9}, ErrNotFound},
		"z": {&ForkPoint{"agent-1", -1}, ErrNotFound},
	} {
		if err := s.CreateVM(ctx, VM{ID: id}, c.from); !errors.Is(err, c.want) {
			t.Errorf("create %s from %v: %v", id, c.from, err)
		}
	}
	if s.CreateVM(ctx, VM{}, nil) == nil || s.CreateVM(ctx, VM{ID: "a\x00b"}, nil) == nil {
		t.Error("a VM without a usable name was made")
	}
}

func TestNamesThatBeginAlikeAreApart(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	for _, id := range []string{"a", "a1", "a/b", "a\x01"} {
		newVM(t, s, id)
		checkpoint(t, s, id, memBytes, delta{0: page(1)})
	}
	if err := s.DeleteVM(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a1", "a/b", "a\x01"} {
		if h, err := s.History(ctx, id); err != nil || len(h) != 1 {
			t.Errorf("%q: %v, %v", id, h, err)
		}
		ledgerKinds(t, s, id)
	}
}

func TestAnAbsentVMIsSaidToBeAbsent(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	for name, do := range map[string]func() error{
		"vm":         func() error { _, err := s.VM(ctx, "x"); return err },
		"history":    func() error { _, err := s.History(ctx, "x"); return err },
		"ledger":     func() error { _, err := s.Ledger(ctx, "x"); return err },
		"checkpoint": func() error { _, err := s.Checkpoint(ctx, "vm", 1); return err },
		"head":       func() error { return s.MoveHead(ctx, "vm", 1, "rewind") },
		"pin":        func() error { return s.SetPinned(ctx, "vm", 1, true) },
		"exit":       func() error { return s.SetExitCode(ctx, "x", 1, 1) },
		"spec":       func() error { return s.SetVMSpec(ctx, "x", nil) },
		"state":      func() error { return s.SetVMState(ctx, "x", nil) },
		"delete":     func() error { return s.DeleteVM(ctx, "x") },
		"append":     func() error { return s.AppendLedger(ctx, "x", "exec", nil) },
		"bundle":     func() error { _, err := s.Bundle(ctx, "x"); return err },
		"bundle rm":  func() error { return s.DeleteBundle(ctx, "x") },
		"empty":      func() error { _, err := s.VM(ctx, ""); return err },
	} {
		if err := do(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRewindRemovesNothing(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	for i := range 3 {
		checkpoint(t, s, "vm", memBytes, delta{0: page(uint64(i))})
	}
	if err := s.MoveHead(ctx, "vm", 1, "rewind"); err != nil {
		t.Fatal(err)
	}
	if c := checkpoint(t, s, "vm", memBytes, delta{0: page(7)}); c.Number != 4 || c.Parent != 1 {
		t.Errorf("%+v", c)
	}
	h, err := s.History(ctx, "vm")
	if err != nil || len(h) != 4 {
		t.Errorf("%+v, %v", h, err)
	}
	if err := s.SetPinned(ctx, "vm", 2, true); err != nil {
		t.Fatal(err)
	}
	if err := s.SetExitCode(ctx, "vm", 2, 0); err != nil {
		t.Fatal(err)
	}
	c, err := s.Checkpoint(ctx, "vm", 2)
	if err != nil || !c.Pinned || c.ExitCode == nil || *c.ExitCode != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestADeletedVMLeavesNothing(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	for i := range 3 {
		checkpoint(t, s, "vm", memBytes, delta{0: page(uint64(i))})
	}
	if err := s.DeleteVM(ctx, "vm"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

// A crash in the middle of a delete must not give a new VM of that name the old one's past.
func TestAnInterruptedDeleteIsFinished(t *testing.T) {
	ctx := context.Background()
	for _, again := range []string{"open", "create"} {
		dir := t.TempDir()
		m := castest.NewMemory()
		s := reopen(t, dir, m)
		newVM(t, s, "vm")
		checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
		failCommits(s, 2)
		if err := s.DeleteVM(ctx, "vm"); !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		s.beforeCommit = nil
		if _, err := s.VM(ctx, "vm"); !errors.Is(err, ErrNotFound) {
			t.Errorf("half deleted: %v", err)
		}
		if _, err := s.Checkpoint(ctx, "vm", 1); !errors.Is(err, ErrNotFound) {
			t.Errorf("half deleted: %v", err)
		}
		if again == "open" {
			s.Close()
			s = reopen(t, dir, m)
			nothingLeft(t, s)
		}
		newVM(t, s, "vm")
		if h, err := s.History(ctx, "vm"); err != nil || len(h) != 0 {
			t.Errorf("a new VM has a history: %v, %v", h, err)
		}
		if k := ledgerKinds(t, s, "vm"); !slices.Equal(k, []string{"created"}) {
			t.Errorf("a new VM has a past: %v", k)
		}
	}
}

func TestALongHistoryIsDeletedInPieces(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	const entries = 2*deleteKeys + 7
	for from := 0; from < entries; from += 1000 {
		err := s.update(ctx, func(tx *badger.Txn) error {
			for i := from; i < min(from+1000, entries); i++ {
				if err := s.enter(tx, "vm", "exec", i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteVM(ctx, "vm"); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, s)
}

func TestABrokenLedgerIsRefused(t *testing.T) {
	ctx := context.Background()
	for name, spoil := range map[string]func(*badger.Txn) error{
		"data changed": func(tx *badger.Txn) error {
			var r ledgerRecord
			if err := getJSON(tx, ledgerKey("vm", 2), &r); err != nil {
				return err
			}
			r.Data = json.RawMessage(`{"argv":["true"]}`)
			return putJSON(tx, ledgerKey("vm", 2), r)
		},
		"entry lost":       func(tx *badger.Txn) error { return tx.Delete(ledgerKey("vm", 2)) },
		"first entry lost": func(tx *badger.Txn) error { return tx.Delete(ledgerKey("vm", 1)) },
		"last entry lost":  func(tx *badger.Txn) error { return tx.Delete(ledgerKey("vm", 3)) },
		"entries swapped": func(tx *badger.Txn) error {
			a, err := get(tx, ledgerKey("vm", 2))
			if err != nil {
				return err
			}
			b, err := get(tx, ledgerKey("vm", 3))
			if err != nil {
				return err
			}
			return errors.Join(tx.Set(ledgerKey("vm", 2), b), tx.Set(ledgerKey("vm", 3), a))
		},
	} {
		s, _ := newStore(t)
		newVM(t, s, "vm")
		for i := range 2 {
			if err := s.AppendLedger(ctx, "vm", "exec", map[string]any{"argv": []string{"<rm>", "-rf"}, "i": i}); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.Ledger(ctx, "vm")
		if err != nil || len(l) != 3 || l[0].Seq != 1 || !l[0].Prev.IsZero() || l[2].Prev != l[1].Hash {
			t.Fatalf("%+v, %v", l, err)
		}
		if err := s.update(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ledger(ctx, "vm"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The data of an entry must hash the same after a trip through JSON, as doors send it.
func TestTheLedgerCanBeVerifiedElsewhere(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	data := json.RawMessage("{ \"a\" : \"<&>\u2028é\", \"n\": 1.50 }")
	if err := s.AppendLedger(ctx, "vm", "exec", data); err != nil {
		t.Fatal(err)
	}
	l, err := s.Ledger(ctx, "vm")
	if err != nil {
		t.Fatal(err)
	}
	p, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var there []LedgerEntry
	if err := json.Unmarshal(p, &there); err != nil {
		t.Fatal(err)
	}
	for _, e := range there {
		if e.sum() != e.Hash {
			t.Errorf("entry %d, %s, hashes to another name", e.Seq, e.Data)
		}
	}
}

func TestABundleNameMovesToTheNewerSnapshot(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	old := putBundle(t, s, "debian", []byte("old"))
	id := putBundle(t, s, "debian", []byte("new"))
	putBundle(t, s, "busybox", []byte("other"))
	if b, err := s.Bundle(ctx, "debian"); err != nil || b.Snapshot != id || id == old {
		t.Errorf("%+v, %v", b, err)
	}
	all, err := s.Bundles(ctx)
	if err != nil || len(all) != 2 || all[0].Name != "busybox" || all[1].Name != "debian" {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.DeleteBundle(ctx, "debian"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bundle(ctx, "debian"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestTheWorkingSetComesBackInOrder(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	id := SnapshotID{1}
	if slots, err := s.WorkingSet(ctx, id); slots != nil || err != nil {
		t.Errorf("nothing remembered: %v, %v", slots, err)
	}
	want := []uint64{5, 3, 3, 0, maxSlots - 1, 0, maxSlots - 1, 7}
	for len(want) < MaxWorkingSet {
		want = append(want, uint64(len(want))*977%maxSlots)
	}
	if err := s.SetWorkingSet(ctx, id, append(want, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.WorkingSet(ctx, id); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d slots of %d, %v", len(got), len(want), err)
	}
	for _, p := range [][]byte{{}, {2}, {1, 0x80}, {1, 1}} {
		s.update(ctx, func(tx *badger.Txn) error { return tx.Set(workingKey(id), p) })
		if _, err := s.WorkingSet(ctx, id); !errors.Is(err, ErrFormat) {
			t.Errorf("% x: %v", p, err)
		}
	}
	if err := s.SetWorkingSet(ctx, id, []uint64{maxSlots}); err == nil {
		t.Error("a slot no image has was remembered")
	}
}

func TestWorkingSetsGoWithTheirSnapshots(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	c := checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
	for _, id := range []SnapshotID{c.Snapshot, {1}, {2}} {
		if err := s.SetWorkingSet(ctx, id, []uint64{1}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.ForgetWorkingSets(ctx); n != 2 || err != nil {
		t.Errorf("%d forgotten, %v", n, err)
	}
	if slots, err := s.WorkingSet(ctx, c.Snapshot); err != nil || len(slots) != 1 {
		t.Errorf("a checkpoint's: %v, %v", slots, err)
	}
}

// nothingLeft fails the test unless the database holds what one without names does.
func nothingLeft(t testing.TB, s *Store) {
	t.Helper()
	if err := s.WriteCatalogue(t.Context()); err != nil { // lets go of the notes
		t.Fatal(err)
	}
	var left []string
	s.view(t.Context(), func(tx *badger.Txn) error {
		for _, key := range keysWith(tx, nil, 100) {
			left = append(left, string(key))
		}
		return nil
	})
	if want := []string{catalogueKey, commitsKey, formatKey, noteBaseKey, storeIDKey}; !slices.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}
