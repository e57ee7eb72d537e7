package store

import (
	"context"
	"errors"
	"sync"
	"testing"

	"flash/cas"
	"flash/cas/castest"
)

func marked(t testing.TB, s *Store) map[cas.Hash]bool {
	t.Helper()
	hs := map[cas.Hash]bool{}
	if err := s.Mark(context.Background(), func(h cas.Hash) { hs[h] = true }); err != nil {
		t.Error(err) // not Fatal: a collection runs in any goroutine
	}
	return hs
}

// sweep removes what isn't marked, as gc will.
func sweep(t testing.TB, s *Store, m *castest.Memory) (removed int) {
	t.Helper()
	keep := marked(t, s)
	for _, h := range m.Hashes() {
		if !keep[h] {
			m.Remove(h)
			removed++
		}
	}
	forget(s)
	return removed
}

func TestWhatAnyNameReachesIsMarked(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	bundle := putBundle(t, s, "b", page(500))
	if err := s.CreateVM(ctx, VM{ID: "vm", Bundle: bundle}, nil); err != nil {
		t.Fatal(err)
	}
	want := delta{0: page(0)}
	states := []delta{}
	for i := range 6 { // patches, and full nodes under them that no root names itself
		want[uint64(i)] = page(uint64(i))
		checkpoint(t, s, "vm", memBytes, delta{uint64(i): page(uint64(i))})
		states = append(states, delta{})
		for slot, p := range want {
			states[i][slot] = p
		}
	}
	if n := sweep(t, s, m); n != 0 {
		t.Errorf("%d of the chunks of a store without garbage aren't marked", n)
	}
	if err := s.DeleteBundle(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if n := sweep(t, s, m); n != 0 {
		t.Errorf("the VM still boots from its bundle, but %d chunks aren't marked", n)
	}
	if err := s.CreateVM(ctx, VM{ID: "child"}, &ForkPoint{"vm", 4}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteVM(ctx, "vm"); err != nil {
		t.Fatal(err)
	}
	if sweep(t, s, m) == 0 {
		t.Error("nothing went with the VM")
	}
	c, err := s.Checkpoint(ctx, "child", 0)
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, image(t, s, c.Snapshot, "mem"), states[3])
	sn, err := s.Snapshot(ctx, c.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	release := sn.Pin()
	if err := s.DeleteVM(ctx, "child"); err != nil {
		t.Fatal(err)
	}
	sweep(t, s, m)
	mustHold(t, image(t, s, c.Snapshot, "mem"), states[3])
	release()
	release()
	if err := s.WriteCatalogue(ctx); err != nil { // as a collection does
		t.Fatal(err)
	}
	sweep(t, s, m)
	if m.Len() != 0 {
		t.Errorf("all is deleted and %d chunks are left", m.Len())
	}
}

// collecting runs a gc before every operation that stores something. The lock stands for what a sweeper owes: it doesn't
// remove what is put while it marks.
type collecting struct {
	*castest.Memory
	mu      sync.Mutex
	collect func()
}

func (c *collecting) Put(ctx context.Context, chunks []cas.Chunk, hints []cas.Hint) (cas.PutStats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collect()
	return c.Memory.Put(ctx, chunks, hints)
}

func (c *collecting) Sync(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collect()
	return c.Memory.Sync(ctx)
}

// A collection at any moment of a checkpoint takes nothing that the checkpoint is going to name (I4).
func TestGcBesideACheckpointTakesNothingOfIt(t *testing.T) {
	c := &collecting{Memory: castest.NewMemory(), collect: func() {}}
	s := reopen(t, t.TempDir(), c)
	newVM(t, s, "vm")
	const bytes = 600 << 20 // several nodes on the level above the leaves
	want := delta{}
	first := delta{}
	for i := range uint64(600) {
		first[i*250] = page(i)
		want[i*250] = page(i)
	}
	checkpoint(t, s, "vm", bytes, first)
	// Garbage that the next checkpoint finds again: known chunks that no name reaches.
	second := delta{}
	for i := range uint64(600) {
		second[i*251+5] = page(10_000 + i)
		want[i*251+5] = page(10_000 + i)
	}
	txn, err := s.Begin(context.Background(), SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := txn.PutImage(context.Background(), ImageSpec{"mem", bytes}, second); err != nil {
		t.Fatal(err)
	}
	txn.Abort()
	collections := 0
	c.collect = func() {
		collections++
		sweep(t, s, c.Memory)
	}
	last := checkpoint(t, s, "vm", bytes, second)
	c.collect = func() {}
	if collections < 10 {
		t.Errorf("only %d collections", collections)
	}
	sweep(t, s, c.Memory)
	got := make([]byte, cas.SlotBytes)
	im := image(t, s, last.Snapshot, "mem")
	for slot, p := range want {
		if err := im.ReadSlot(context.Background(), slot, got); err != nil || string(got) != string(p) {
			t.Fatalf("slot %d: %v", slot, err)
		}
	}
}

func TestWhatATransactionDescendsFromStays(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	newVM(t, s, "other")
	c := checkpoint(t, s, "vm", memBytes, delta{0: page(1), 200: page(2)})
	txn, err := s.Begin(ctx, c.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	if err := s.DeleteVM(ctx, "vm"); err != nil {
		t.Fatal(err)
	}
	sweep(t, s, m)
	if _, err := txn.PutImage(ctx, ImageSpec{"mem", memBytes}, delta{0: page(3)}); err != nil {
		t.Fatal(err)
	}
	last, err := txn.Commit(ctx, Meta{Kind: "checkpoint"}, Move{VM: "other", ExpectHead: -1})
	if err != nil {
		t.Fatal(err)
	}
	sweep(t, s, m)
	mustHold(t, image(t, s, last.Snapshot, "mem"), delta{0: page(3), 200: page(2)})
}

func TestMarksAreIncompleteWhenAnyNodeIsMissing(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	c := checkpoint(t, s, "vm", memBytes, delta{0: page(1), 200: page(2)})
	root := image(t, s, c.Snapshot, "mem").root.Hash
	m.Remove(root)
	forget(s)
	if err := s.Mark(ctx, func(cas.Hash) {}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a node is missing: %v", err)
	}
	m.Remove(c.Snapshot)
	if err := s.Mark(ctx, func(cas.Hash) {}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a record is missing: %v", err)
	}
}

func TestRootsAreTheNamedSnapshots(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	want := map[SnapshotID]bool{putBundle(t, s, "b", []byte("x")): true}
	for i := range 3 {
		want[checkpoint(t, s, "vm", memBytes, delta{0: page(uint64(i))}).Snapshot] = true
	}
	got := map[SnapshotID]bool{}
	for id, err := range s.Roots(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got[id] = true
	}
	if len(got) != len(want) {
		t.Errorf("%d roots, want %d", len(got), len(want))
	}
	for id := range want {
		if !got[id] {
			t.Errorf("%s isn't a root", id)
		}
	}
}
