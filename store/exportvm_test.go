package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas/castest"
	"flash/store/manifest"
)

// busyVM has two branches, a pin, an exit code, rules, and a fork.
func busyVM(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	newVM(t, s, "a")
	for i := range 4 {
		checkpoint(t, s, "a", memBytes, delta{uint64(i): page(uint64(i))})
	}
	if err := errors.Join(
		s.MoveHead(ctx, "a", 2, "rewind"),
		s.SetPinned(ctx, "a", 1, true),
		s.SetExitCode(ctx, "a", 2, -1),
		s.SetVMSpec(ctx, "a", []byte(`{"memory_mib":512}`)),
		s.SetVMState(ctx, "a", []byte(`{"phase":"running"}`)),
		s.SetRetention(ctx, "a", &Retention{KeepLast: 100}),
		s.AppendLedger(ctx, "a", "exec", map[string]any{"command": "echo <&>"}),
	); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, s, "a", memBytes, delta{77: page(77)})
	if err := s.CreateVM(ctx, VM{ID: "child"}, &ForkPoint{VM: "a", Number: 1}); err != nil {
		t.Fatal(err)
	}
}

// travelled is a history that has been bytes.
func travelled(t testing.TB, s *Store, vm string) History {
	t.Helper()
	h, err := s.ExportVM(context.Background(), vm)
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.DecodeHistory(p)
	if err != nil || !reflect.DeepEqual(*got, h) {
		t.Fatalf("%v: decoded\n%+v\nexported\n%+v", err, got, h)
	}
	return *got
}

func TestAnImportedVMIsTheExportedOne(t *testing.T) {
	ctx := context.Background()
	m := castest.NewMemory()
	from, to := reopen(t, t.TempDir(), m), reopen(t, t.TempDir(), m)
	busyVM(t, from)
	for _, vm := range []string{"a", "child"} {
		h := travelled(t, from, vm)
		if err := to.ImportVM(ctx, h, ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		mustBeSameVM(t, from, to, vm)
		if err := to.ImportVM(ctx, h, ImportOptions{}); !errors.Is(err, ErrExists) {
			t.Fatalf("a second time: %v", err)
		}
		if err := to.ImportVM(ctx, h, ImportOptions{As: vm + "2"}); err != nil {
			t.Fatal(err)
		}
	}
	c := checkpoint(t, to, "a", memBytes, delta{5: page(5)})
	if c.Number != 6 || c.Parent != 5 {
		t.Fatalf("it went on with checkpoint %d of %d", c.Number, c.Parent)
	}
	if r, err := to.Check(ctx, CheckOptions{}); err != nil || len(r.Findings) > 0 {
		t.Fatalf("%v, %+v", err, r.Findings)
	}
}

// mustBeSameVM compares all but the state.
func mustBeSameVM(t testing.TB, a, b *Store, vm string) {
	t.Helper()
	want, got := travelled(t, a, vm), travelled(t, b, vm)
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: there is\n%+v\nit was\n%+v", vm, got, want)
	}
	if l, err := b.Ledger(context.Background(), vm); err != nil || len(l) == 0 {
		t.Fatalf("%s: ledger of %d entries, %v", vm, len(l), err)
	}
}

func TestAHistoryIsContinuedOnlyByItsOwnFuture(t *testing.T) {
	ctx := context.Background()
	m := castest.NewMemory()
	from, to := reopen(t, t.TempDir(), m), reopen(t, t.TempDir(), m)
	busyVM(t, from)
	if err := to.ImportVM(ctx, travelled(t, from, "a"), ImportOptions{Continue: true}); err != nil {
		t.Fatal(err) // there is none to continue
	}
	if err := to.SetVMState(ctx, "a", []byte(`{"phase":"stopped"}`)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		checkpoint(t, from, "a", memBytes, delta{uint64(i): page(uint64(90 + i))})
	}
	if err := errors.Join(from.SetPinned(ctx, "a", 1, false), from.MoveHead(ctx, "a", 4, "rewind")); err != nil {
		t.Fatal(err)
	}
	longer := travelled(t, from, "a")
	if err := to.ImportVM(ctx, longer, ImportOptions{Continue: true}); err != nil {
		t.Fatal(err)
	}
	mustBeSameVM(t, from, to, "a")
	if v, _ := to.VM(ctx, "a"); string(v.State) != `{"phase":"stopped"}` {
		t.Fatalf("its state became %s", v.State)
	}
	checkpoint(t, to, "a", memBytes, delta{5: page(5)})
	if err := to.ImportVM(ctx, longer, ImportOptions{Continue: true}); !errors.Is(err, ErrRefMoved) {
		t.Fatalf("a history without the newest checkpoint: %v", err)
	}
	checkpoint(t, from, "a", memBytes, delta{6: page(6)})
	if err := to.ImportVM(ctx, travelled(t, from, "a"), ImportOptions{Continue: true}); !errors.Is(err, ErrRefMoved) {
		t.Fatalf("a history with another checkpoint of that number: %v", err)
	}
	if l, err := to.History(ctx, "a"); err != nil || len(l) != 9 {
		t.Fatalf("%d checkpoints, %v", len(l), err)
	}
}

func TestALedgerMayLackItsBeginning(t *testing.T) {
	ctx := context.Background()
	m := castest.NewMemory()
	from, to := reopen(t, t.TempDir(), m), reopen(t, t.TempDir(), m)
	busyVM(t, from)
	h := travelled(t, from, "a")
	whole := len(h.Ledger)
	h.TrimLedger(2)
	if err := to.ImportVM(ctx, h, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := to.AppendLedger(ctx, "a", "exec", 1); err != nil {
		t.Fatal(err)
	}
	if l, err := to.Ledger(ctx, "a"); err != nil || len(l) != 3 || l[2].Seq != uint64(whole+1) {
		t.Fatalf("%d entries, %v", len(l), err)
	}
	if err := to.db.Update(func(tx *badger.Txn) error { return tx.Delete(ledgerKey("a", uint64(whole-1))) }); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Ledger(ctx, "a"); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("without its first entry: %v", err)
	}
}

func TestAHistoryOfWhatIsNotThereIsRefused(t *testing.T) {
	ctx := context.Background()
	from, _ := newStore(t)
	to, _ := newStore(t)
	busyVM(t, from)
	h := travelled(t, from, "a")
	if err := to.ImportVM(ctx, h, ImportOptions{}); !errors.Is(err, ErrNotFound) {
		t.Fatalf("without its snapshots: %v", err)
	}
	h.Head = 99
	if err := from.ImportVM(ctx, h, ImportOptions{As: "b"}); !errors.Is(err, ErrFormat) {
		t.Fatalf("with an impossible head: %v", err)
	}
	h = travelled(t, from, "a")
	h.Ledger = h.Ledger[:1]
	h.Ledger[0].Data = []byte(`{"a": "<"}`) // Badger would keep it in other words
	h.Ledger[0].Hash = h.Ledger[0].Sum()
	if err := from.ImportVM(ctx, h, ImportOptions{As: "b"}); !errors.Is(err, ErrFormat) {
		t.Fatalf("with a ledger that would not be read back: %v", err)
	}
	if vms, _ := to.VMs(ctx); len(vms) != 0 {
		t.Fatalf("%d VMs came", len(vms))
	}
}

// A crash in the middle of an import leaves nothing, whichever transaction it was.
func TestAnImportThatFailsLeavesNothing(t *testing.T) {
	ctx := context.Background()
	from, m := newStore(t)
	newVM(t, from, "a")
	h := travelled(t, from, "a")
	first := checkpoint(t, from, "a", memBytes, delta{1: page(1)})
	for n := 1; n <= 2*importBatch; n++ {
		h.Checkpoints = append(h.Checkpoints, manifest.NamedSnapshot{Number: n, Parent: n - 1, Snapshot: first.Snapshot, Created: time.Unix(int64(n), 0).UTC()})
	}
	h.Checkpoints[0].Parent = manifest.NoCheckpoint
	h.Next = 2*importBatch + 1
	for failing := 1; ; failing++ {
		dir := t.TempDir()
		to := reopen(t, dir, m)
		left := failing
		to.beforeCommit = func() error {
			if left--; left <= 0 {
				return fmt.Errorf("transaction %d fails", failing)
			}
			return nil
		}
		err := to.ImportVM(ctx, h, ImportOptions{})
		to.beforeCommit = nil
		if err == nil {
			if l, err := to.History(ctx, "a"); err != nil || len(l) != 2*importBatch {
				t.Fatalf("%d checkpoints, %v", len(l), err)
			}
			return
		}
		if vms, _ := to.VMs(ctx); len(vms) != 0 {
			t.Fatal("half a VM is there")
		}
		to.Close()
		again := reopen(t, dir, m)
		if err := again.view(ctx, func(tx *badger.Txn) error {
			if keys := keysWith(tx, historyKeys("a"), -1); len(keys) > 0 {
				return fmt.Errorf("%d keys are left", len(keys))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
