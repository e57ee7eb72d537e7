package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
)

var errInjected = errors.New("injected")

// everything is all that is visible in the store.
func everything(t testing.TB, s *Store) string {
	t.Helper()
	ctx := context.Background()
	vms, err := s.VMs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	bundles, err := s.Bundles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := []any{vms, bundles}
	for _, v := range vms {
		h, err := s.History(ctx, v.ID)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Ledger(ctx, v.ID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h, l)
	}
	p, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// The nth operation on the chunks fails, for every n until none does; then the nth commit of Badger.
func TestFailedCheckpointLosesNothing(t *testing.T) {
	s, m := newStore(t)
	newVM(t, s, "vm")
	want := delta{0: page(1), 1: page(2), 130: page(3), 300: page(4)}
	first := checkpoint(t, s, "vm", memBytes, want)
	before := everything(t, s)
	ch := delta{0: page(10), 130: make([]byte, cas.SlotBytes), 301: page(11)}
	fails := 0
	mustFailWhole := func(n int) bool {
		t.Helper()
		_, err := tryCheckpoint(s, "vm", memBytes, ch)
		if err == nil {
			return false
		}
		fails++
		if !errors.Is(err, errInjected) {
			t.Fatalf("operation %d fails: %v", n, err)
		}
		if now := everything(t, s); now != before {
			t.Fatalf("operation %d fails: before\n%s\nnow\n%s", n, before, now)
		}
		if len(s.txns) != 0 || len(s.pins) != 0 {
			t.Fatalf("operation %d fails: %d transactions, %d pins left", n, len(s.txns), len(s.pins))
		}
		return true
	}
	for n := 1; ; n++ {
		forget(s)
		// New content each time: what a failed try has stored is known to the next.
		ch[0] = page(uint64(100 + n))
		m.FailAt(n, errInjected)
		if !mustFailWhole(n) {
			break
		}
		m.FailAt(0, nil)
		mustHold(t, image(t, s, first.Snapshot, "mem"), want)
	}
	m.FailAt(0, nil)
	if fails < 8 {
		t.Fatalf("only %d operations failed: the test tests little", fails)
	}
	before = everything(t, s)
	failCommits(s, 1)
	ch[0] = page(1000)
	if !mustFailWhole(1) {
		t.Fatal("a checkpoint survived a failed commit of Badger")
	}
	s.beforeCommit = nil
	if c := checkpoint(t, s, "vm", memBytes, ch); c.Number != 3 || c.Parent != 2 {
		t.Fatalf("after failures: %+v", c)
	}
}

// failCommits makes the nth commit from now fail.
func failCommits(s *Store, n int) {
	s.beforeCommit = func() error {
		if n--; n == 0 {
			return errInjected
		}
		return nil
	}
}

func TestEveryFailedCommitOfBadgerChangesNothing(t *testing.T) {
	ctx := context.Background()
	for name, do := range map[string]func(*Store) error{
		"create":  func(s *Store) error { return s.CreateVM(ctx, VM{ID: "new"}, nil) },
		"fork":    func(s *Store) error { return s.CreateVM(ctx, VM{ID: "new"}, &ForkPoint{"vm", 1}) },
		"rewind":  func(s *Store) error { return s.MoveHead(ctx, "vm", 1, "rewind") },
		"pin":     func(s *Store) error { return s.SetPinned(ctx, "vm", 1, true) },
		"exit":    func(s *Store) error { return s.SetExitCode(ctx, "vm", 1, 3) },
		"spec":    func(s *Store) error { return s.SetVMSpec(ctx, "vm", json.RawMessage(`1`)) },
		"state":   func(s *Store) error { return s.SetVMState(ctx, "vm", json.RawMessage(`1`)) },
		"delete":  func(s *Store) error { return s.DeleteVM(ctx, "vm") },
		"ledger":  func(s *Store) error { return s.AppendLedger(ctx, "vm", "exec", 1) },
		"bundle":  func(s *Store) error { return s.DeleteBundle(ctx, "b") },
		"working": func(s *Store) error { return s.SetWorkingSet(ctx, SnapshotID{1}, []uint64{1}) },
	} {
		s, _ := newStore(t)
		newVM(t, s, "vm")
		putBundle(t, s, "b", []byte("kernel"))
		checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
		checkpoint(t, s, "vm", memBytes, delta{0: page(2)})
		before := everything(t, s)
		failCommits(s, 1)
		if err := do(s); !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", name, err)
		}
		if now := everything(t, s); now != before {
			t.Errorf("%s failed: before\n%s\nnow\n%s", name, before, now)
		}
		s.beforeCommit = nil
		if err := do(s); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
	}
}

func putBundle(t testing.TB, s *Store, name string, kernel []byte) SnapshotID {
	t.Helper()
	ctx := context.Background()
	txn, err := s.Begin(ctx, SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	if _, err := txn.PutBytes(ctx, "kernel", kernel); err != nil {
		t.Fatal(err)
	}
	c, err := txn.Commit(ctx, Meta{Kind: "bundle", Facts: map[string]string{"name": name}}, Move{Bundle: name})
	if err != nil {
		t.Fatal(err)
	}
	return c.Snapshot
}

func TestCommitRefusesAHeadThatMoved(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	first := checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
	late, err := s.Begin(ctx, first.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Abort()
	if err := late.Keep("mem", "state"); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, s, "vm", memBytes, delta{0: page(2)})
	before := everything(t, s)
	mv := Move{VM: "vm", ExpectHead: 1}
	if _, err := late.Commit(ctx, Meta{Kind: "checkpoint"}, mv); !errors.Is(err, ErrRefMoved) {
		t.Fatalf("%v", err)
	}
	if now := everything(t, s); now != before {
		t.Fatalf("before\n%s\nnow\n%s", before, now)
	}
	mv.ExpectHead, mv.KeepHead = 2, true
	c, err := late.Commit(ctx, Meta{Kind: "checkpoint"}, mv)
	if err != nil || c.Number != 3 || c.Parent != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	if v, _ := s.VM(ctx, "vm"); v.Head != 2 || v.Next != 4 {
		t.Fatalf("KeepHead: %+v", v)
	}
	if _, err := late.Commit(ctx, Meta{Kind: "checkpoint"}, mv); err == nil {
		t.Fatal("a transaction was committed twice")
	}
	late.Abort()
}

func TestASnapshotNeedsAKindAndOneName(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	for _, c := range []struct {
		m  Meta
		mv Move
	}{
		{Meta{}, Move{Bundle: "b"}},
		{Meta{Kind: "other"}, Move{Bundle: "b"}},
		{Meta{Kind: "bundle"}, Move{}},
		{Meta{Kind: "bundle"}, Move{Bundle: "b", VM: "vm", ExpectHead: -1}},
		{Meta{Kind: "checkpoint"}, Move{Bundle: "b"}},
		{Meta{Kind: "bundle"}, Move{VM: "vm", ExpectHead: -1}},
		{Meta{Kind: "checkpoint"}, Move{VM: "absent", ExpectHead: -1}},
		{Meta{Kind: "bundle"}, Move{Bundle: "zero\x00byte"}},
	} {
		txn, err := s.Begin(ctx, SnapshotID{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := txn.Commit(ctx, c.m, c.mv); err == nil {
			t.Errorf("%+v %+v was committed", c.m, c.mv)
		}
		txn.Abort()
	}
}

func TestWhatWasCommittedSurvivesACrash(t *testing.T) {
	dir := t.TempDir()
	m := castest.NewMemory()
	s := reopen(t, dir, m)
	newVM(t, s, "vm")
	want := delta{0: page(1), 300: page(2)}
	c := checkpoint(t, s, "vm", memBytes, want)
	txn, err := s.Begin(context.Background(), c.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.PutImage(context.Background(), ImageSpec{"mem", memBytes}, delta{0: page(9)}); err != nil {
		t.Fatal(err)
	}
	before := everything(t, s)
	crashed := m.Crash()
	txn.Abort()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, dir, crashed)
	if now := everything(t, s); now != before {
		t.Fatalf("before\n%s\nnow\n%s", before, now)
	}
	mustHold(t, image(t, s, c.Snapshot, "mem"), want)
}

func TestTheRecordSaysWhatTheSnapshotIs(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	id := putBundle(t, s, "b", []byte("kernel"))
	sn, err := s.Snapshot(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	meta := sn.Meta()
	if sn.ID() != id || !sn.Parent().IsZero() || meta.Kind != "bundle" || meta.Facts["name"] != "b" || meta.Created.IsZero() ||
		meta.Created.Location() != time.UTC || !reflect.DeepEqual(sn.Images(), []ImageSpec{{"kernel", 6}}) {
		t.Errorf("%+v %+v", meta, sn.Images())
	}
	if _, err := sn.Image(ctx, "initrd"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an image that isn't there: %v", err)
	}
	if _, err := s.Snapshot(ctx, SnapshotID{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a snapshot that isn't there: %v", err)
	}
	for _, h := range m.Hashes() {
		if h != id {
			if _, err := s.Snapshot(ctx, h); !errors.Is(err, ErrFormat) {
				t.Errorf("a chunk that is no record: %v", err)
			}
		}
	}
	if txn, err := s.Begin(ctx, SnapshotID{1}); err == nil || txn != nil || len(s.txns)+len(s.pins) != 0 {
		t.Errorf("a snapshot descends from one that isn't there: %v", err)
	}
}

func TestNewBytesIsAllThatWasAppended(t *testing.T) {
	ctx := context.Background()
	m := &counting{Memory: castest.NewMemory()}
	s := reopen(t, t.TempDir(), m)
	newVM(t, s, "vm")
	for i := range 5 {
		before := m.appended
		c := checkpoint(t, s, "vm", memBytes, delta{uint64(i): page(uint64(i)), 300: page(uint64(50 + i))})
		if c.NewBytes != m.appended-before || c.NewBytes < 2*cas.SlotBytes {
			t.Errorf("checkpoint %d: NewBytes %d, appended %d", c.Number, c.NewBytes, m.appended-before)
		}
		if got, err := s.Checkpoint(ctx, "vm", c.Number); err != nil || !reflect.DeepEqual(got, *c) {
			t.Errorf("%+v was returned, %+v is remembered, %v", c, got, err)
		}
	}
}

type counting struct {
	*castest.Memory
	appended int64
}

func (c *counting) Put(ctx context.Context, chunks []cas.Chunk, hints []cas.Hint) (cas.PutStats, error) {
	stats, err := c.Memory.Put(ctx, chunks, hints)
	c.appended += stats.NewBytes
	return stats, err
}

func TestAFullDiskIsSaidAndNothingIsLost(t *testing.T) {
	s, m := newStore(t)
	newVM(t, s, "vm")
	checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
	before := everything(t, s)
	m.FailAt(3, fmt.Errorf("pack: %w", cas.ErrNoSpace))
	if _, err := tryCheckpoint(s, "vm", memBytes, delta{0: page(2)}); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("chunks: %v", err)
	}
	m.FailAt(0, nil)
	s.freeBytes = func(string) (uint64, error) { return reserveBytes - 1, nil }
	if _, err := tryCheckpoint(s, "vm", memBytes, delta{0: page(2)}); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("Badger: %v", err)
	}
	if now := everything(t, s); now != before {
		t.Errorf("before\n%s\nnow\n%s", before, now)
	}
	s.freeBytes = freeBytes
	checkpoint(t, s, "vm", memBytes, delta{0: page(2)})
}

func TestOneImageIsPutOnce(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	id := putBundle(t, s, "b", []byte("kernel"))
	txn, err := s.Begin(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	if err := txn.Keep("kernel"); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.PutBytes(ctx, "kernel", nil); !errors.Is(err, ErrExists) {
		t.Errorf("kept and put: %v", err)
	}
	if err := txn.Keep("mem"); !errors.Is(err, ErrNotFound) {
		t.Errorf("kept what the parent hasn't: %v", err)
	}
}

func TestCancelledPutEndsPromptlyAndLeavesTheVMAsItWas(t *testing.T) {
	s, _ := newStore(t)
	newVM(t, s, "vm")
	before := everything(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	txn, err := s.Begin(ctx, SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	if _, err := txn.PutImage(ctx, ImageSpec{"mem", 1 << 30}, cancelling{sparse{1 << 18, 1}, cancel}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if now := everything(t, s); now != before {
		t.Fatalf("before\n%s\nnow\n%s", before, now)
	}
}

// cancelling cancels when slot 1000 is read.
type cancelling struct {
	sparse
	cancel func()
}

func (c cancelling) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if slot == 1000 {
		c.cancel()
	}
	return c.sparse.ReadSlot(ctx, slot, dst)
}
