package store

import (
	"context"
	"errors"
	"testing"

	"flash/cas"
)

const budget = 32 << 20

// budgeted is a store over packs with a budget, and a VM that has a checkpoint.
func budgeted(t *testing.T) *Store {
	t.Helper()
	s := reopen(t, t.TempDir(), openPacks(t, t.TempDir()))
	if err := s.SetSettings(t.Context(), Settings{BudgetBytes: budget}); err != nil {
		t.Fatal(err)
	}
	newVM(t, s, "a")
	checkpoint(t, s, "a", wideBytes, delta{1: page(1)})
	return s
}

const wideBytes = budget // of memory

// fresh is n pages that nobody has.
func fresh(seed *uint64, n int) delta {
	ch := delta{}
	for slot := range uint64(n) {
		*seed++
		ch[slot] = page(*seed)
	}
	return ch
}

func TestAFullBudgetRefusesBeforeItIsFullAndLosesNothing(t *testing.T) {
	ctx := t.Context()
	s := budgeted(t)
	seed := uint64(100)
	var err error
	taken := 1
	for ; err == nil && taken < 1000; taken++ {
		_, err = tryCheckpoint(s, "a", wideBytes, fresh(&seed, 200))
	}
	u := s.Usage()
	if !errors.Is(err, ErrBudget) || !errors.Is(err, cas.ErrNoSpace) {
		t.Fatalf("after %d checkpoints: %v", taken, err)
	}
	if u.PackBytes < u.Limit || u.PackBytes > u.Budget || !u.Pressing() || u.Budget != budget {
		t.Fatalf("refused at %+v", u)
	}
	if h, _ := s.History(ctx, "a"); len(h) != taken-1 {
		t.Fatalf("%d of %d checkpoints", len(h), taken-1)
	}
	// The reserve is for the present of a VM that is stopped.
	mustCommit := func(p Purse, ch delta) error {
		v, err := s.VM(ctx, "a")
		if err != nil {
			return err
		}
		txn, err := s.Begin(ctx, SnapshotID{})
		if err != nil {
			return err
		}
		defer txn.Abort()
		txn.MayUse(p)
		if _, err := txn.PutImage(ctx, ImageSpec{"mem", wideBytes}, ch); err != nil {
			return err
		}
		_, err = txn.Commit(ctx, Meta{Kind: "checkpoint"}, Move{VM: "a", ExpectHead: v.Head})
		return err
	}
	if err := mustCommit(Reserve, fresh(&seed, 50)); err != nil {
		t.Fatalf("the reserve is there and isn't used: %v", err)
	}
	if err := mustCommit(Reserve, fresh(&seed, 4000)); !errors.Is(err, ErrBudget) {
		t.Fatalf("16 MB into the reserve: %v", err)
	}
	if u := s.Usage(); u.PackBytes > u.Budget+int64(s.workers)<<20 {
		t.Fatalf("the budget was passed by more than a batch a worker: %+v", u)
	}
	if err := mustCommit(Overdraft, fresh(&seed, 400)); err != nil {
		t.Fatalf("what would be lost isn't stored: %v", err)
	}
	if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || r.Worst == Damage {
		t.Fatalf("%v, %+v", err, r.Findings)
	}
	// Collecting makes room, though the packs are beyond their budget.
	if err := s.DeleteVM(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GC(ctx, GCOptions{Apply: true}); err != nil {
		t.Fatal(err)
	}
	newVM(t, s, "b")
	checkpoint(t, s, "b", wideBytes, delta{1: page(1)})
	if u := s.Usage(); u.Pressing() {
		t.Fatalf("after all was collected: %+v", u)
	}
}

func TestABudgetIsKeptAndCanBeRaised(t *testing.T) {
	ctx := t.Context()
	dir, chunks := t.TempDir(), openPacks(t, t.TempDir())
	s := reopen(t, dir, chunks)
	for _, bad := range []int64{-1, 1, MinBudgetBytes - 1} {
		if err := s.SetSettings(ctx, Settings{BudgetBytes: bad}); err == nil {
			t.Errorf("a budget of %d bytes was taken", bad)
		}
	}
	if err := s.SetSettings(ctx, Settings{BudgetBytes: MinBudgetBytes}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = reopen(t, dir, chunks)
	if u := s.Usage(); u.Budget != MinBudgetBytes || u.Limit != MinBudgetBytes/8*7 {
		t.Fatalf("reopened with %+v", u)
	}
	newVM(t, s, "a")
	seed := uint64(0)
	for range 5 {
		_, err := tryCheckpoint(s, "a", wideBytes, fresh(&seed, 1000))
		if errors.Is(err, ErrBudget) {
			if err := s.SetSettings(ctx, Settings{}); err != nil {
				t.Fatal(err)
			}
			checkpoint(t, s, "a", wideBytes, fresh(&seed, 1000))
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("never refused")
}

// Whoever fails midway has put a part: the packs stay below the budget, and nothing of it is a checkpoint.
func TestManyAtOnceStayWithinTheBudget(t *testing.T) {
	s := budgeted(t)
	ctx := context.Background()
	errs := make(chan error)
	const vms = 8
	for i := range vms {
		id := string(rune('b' + i))
		newVM(t, s, id)
		go func() {
			seed := uint64(i+1) << 32
			var err error
			for err == nil {
				_, err = tryCheckpoint(s, id, wideBytes, fresh(&seed, 300))
			}
			errs <- err
		}()
	}
	for range vms {
		if err := <-errs; !errors.Is(err, ErrBudget) {
			t.Error(err)
		}
	}
	if u := s.Usage(); u.PackBytes < u.Limit || u.PackBytes > u.Budget+vms<<20 {
		t.Errorf("%+v", u)
	}
	if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || r.Worst != "" {
		t.Fatalf("%v, %+v", err, r.Findings)
	}
}
