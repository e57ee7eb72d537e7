package blockdelta

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// memBase is a base in memory that counts what it is asked.
type memBase struct {
	data        []byte
	single      atomic.Int64
	batches     atomic.Int64
	beforeRead  func(slot uint64) error // nil: nothing
	leaveOut    bool                    // ReadSlots forgets its last slot
	nilForZeros bool
}

func newMemBase(blocks int, seed uint64) *memBase {
	b := &memBase{data: make([]byte, blocks*BlockBytes), nilForZeros: true}
	rng := rand.New(rand.NewPCG(seed, 1))
	for block := range blocks {
		if rng.IntN(3) == 0 {
			continue // zero
		}
		fill(b.data[block*BlockBytes:(block+1)*BlockBytes], rng)
	}
	return b
}

func fill(p []byte, rng *rand.Rand) {
	var word [8]byte
	for len(p) > 0 {
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		p = p[copy(p, word[:]):]
	}
}

// holdFirst makes the first read of the base wait for goOn, having closed entered.
func (b *memBase) holdFirst() (entered, goOn chan struct{}) {
	entered, goOn = make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	b.beforeRead = func(uint64) error {
		if held.CompareAndSwap(false, true) {
			close(entered)
			<-goOn
		}
		return nil
	}
	return entered, goOn
}

func (b *memBase) Slots() uint64 { return uint64(len(b.data) / BlockBytes) }

func (b *memBase) block(slot uint64) []byte { return b.data[slot*BlockBytes : (slot+1)*BlockBytes] }

func (b *memBase) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	b.single.Add(1)
	if b.beforeRead != nil {
		if err := b.beforeRead(slot); err != nil {
			return err
		}
	}
	if copy(dst, b.block(slot)) != BlockBytes {
		return fmt.Errorf("short buffer")
	}
	return ctx.Err()
}

func (b *memBase) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	b.batches.Add(1)
	if b.leaveOut {
		slots = slots[:len(slots)-1]
	}
	shared := make([]byte, BlockBytes)
	for i := range slots {
		slot := slots[len(slots)-1-i] // any order is allowed
		if b.beforeRead != nil {
			if err := b.beforeRead(slot); err != nil {
				return err
			}
		}
		copy(shared, b.block(slot))
		data := shared
		if b.nilForZeros && isZero(shared) {
			data = nil
		}
		if err := each(slot, data); err != nil {
			return err
		}
		clear(shared) // reused after each returns
	}
	return ctx.Err()
}

// merged is the base a store would give after a commit of d over b.
func (b *memBase) merged(t testing.TB, d *Delta) *memBase {
	t.Helper()
	n := &memBase{data: append([]byte(nil), b.data...), nilForZeros: true}
	last := -1
	for slot := range d.Slots() {
		if int(slot) <= last {
			t.Fatalf("slots are not ascending: %d after %d", slot, last)
		}
		last = int(slot)
		if err := d.ReadSlot(t.Context(), slot, n.block(slot)); err != nil {
			t.Fatal(err)
		}
		if d.IsZero(slot) && !isZero(n.block(slot)) {
			t.Fatalf("block %d is said to be zero and isn't", slot)
		}
	}
	return n
}

func open(t testing.TB, base Base) *Overlay {
	t.Helper()
	o, err := New(base, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}
