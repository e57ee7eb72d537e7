package store

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
)

// delta is some changed slots.
type delta map[uint64][]byte

func (d delta) Slots() iter.Seq[uint64] { return slices.Values(slices.Sorted(maps.Keys(d))) }

func (d delta) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	clear(dst[copy(dst, d[slot]):])
	return nil
}

// page is a page no other seed gives.
func page(seed uint64) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32)})
	p := make([]byte, cas.SlotBytes)
	rng.Read(p)
	return p
}

func filled(b byte) []byte { return bytes.Repeat([]byte{b}, cas.SlotBytes) }

func reopen(t testing.TB, dir string, chunks cas.Store) *Store {
	t.Helper()
	clock := time.Unix(1_700_000_000, 0).UTC()
	s, err := Open(context.Background(), Config{Dir: dir, Chunks: chunks, Anew: true, Now: func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newStore(t testing.TB) (*Store, *castest.Memory) {
	t.Helper()
	m := castest.NewMemory()
	return reopen(t, t.TempDir(), m), m
}

func newVM(t testing.TB, s *Store, id string) {
	t.Helper()
	if err := s.CreateVM(context.Background(), VM{ID: id}, nil); err != nil {
		t.Fatal(err)
	}
}

const memBytes = 3 << 19 // three leaves

// checkpoint appends one to a VM, with mem changed.
func checkpoint(t testing.TB, s *Store, vm string, memBytes uint64, ch Changes) *Checkpoint {
	t.Helper()
	c, err := tryCheckpoint(s, vm, memBytes, ch)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryCheckpoint(s *Store, vm string, memBytes uint64, ch Changes) (*Checkpoint, error) {
	ctx := context.Background()
	v, err := s.VM(ctx, vm)
	if err != nil {
		return nil, err
	}
	var parent SnapshotID
	if v.Head >= 0 {
		head, err := s.Checkpoint(ctx, vm, v.Head)
		if err != nil {
			return nil, err
		}
		parent = head.Snapshot
	}
	txn, err := s.Begin(ctx, parent)
	if err != nil {
		return nil, err
	}
	defer txn.Abort()
	if _, err := txn.PutImage(ctx, ImageSpec{"mem", memBytes}, ch); err != nil {
		return nil, err
	}
	if _, err := txn.PutBytes(ctx, "state", []byte(fmt.Sprintf("state after %d", v.Next))); err != nil {
		return nil, err
	}
	return txn.Commit(ctx, Meta{Kind: "checkpoint"}, Move{VM: vm, ExpectHead: v.Head, Label: fmt.Sprintf("command %d", v.Next)})
}

func image(t testing.TB, s *Store, id SnapshotID, name string) *Image {
	t.Helper()
	sn, err := s.Snapshot(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	im, err := sn.Image(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// mustHold compares every slot of an image, in each of the ways there are to read it, with what it should hold.
func mustHold(t testing.TB, im *Image, want delta) {
	t.Helper()
	ctx := context.Background()
	got := make([]byte, cas.SlotBytes)
	zero := make([]byte, cas.SlotBytes)
	var all []uint64
	for slot := range im.Slots() {
		all = append(all, slot)
		w := want[slot]
		if w == nil {
			w = zero
		}
		if err := im.ReadSlot(ctx, slot, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, w) {
			t.Fatalf("image %s slot %d: other bytes than were put", im.name, slot)
		}
		if isZero, err := im.IsZero(ctx, slot); err != nil || isZero != bytes.Equal(w, zero) {
			t.Fatalf("image %s slot %d: zero %v, %v", im.name, slot, isZero, err)
		}
	}
	seen := map[uint64]bool{}
	err := im.ReadSlots(ctx, all, func(slot uint64, data []byte) error {
		seen[slot] = true
		w := want[slot]
		if w == nil {
			w = zero
		}
		if data == nil && !bytes.Equal(w, zero) || data != nil && !bytes.Equal(data, w) {
			t.Fatalf("image %s slot %d: ReadSlots gives other bytes than were put", im.name, slot)
		}
		return nil
	})
	if err != nil || len(seen) != len(all) {
		t.Fatalf("ReadSlots: %d of %d slots, %v", len(seen), len(all), err)
	}
}

// forget empties the node cache, also one in use, so that what is read next is what is stored.
func forget(s *Store) {
	for i := range s.nodes.cache.shards {
		sh := &s.nodes.cache.shards[i]
		sh.mu.Lock()
		clear(sh.items)
		sh.ring.next, sh.ring.prev = &sh.ring, &sh.ring
		sh.bytes = 0
		sh.mu.Unlock()
	}
}

// withoutNotes lists the chunks that snapshots are made of.
func withoutNotes(t testing.TB, m *castest.Memory) []cas.Hash {
	t.Helper()
	notes, err := m.HashesOf(context.Background(), cas.KindNote)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(m.Hashes(), func(h cas.Hash) bool { return slices.Contains(notes, h) })
}
