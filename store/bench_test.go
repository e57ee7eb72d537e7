package store

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"flash/cas"
	"flash/cas/castest"
)

// BenchmarkReadSlot: ns/slot with cached nodes, in a 512 MiB image; zero slots show the walk without the chunk.
func BenchmarkReadSlot(b *testing.B) {
	s, _ := newStore(b)
	newVM(b, s, "vm")
	im := image(b, s, checkpoint(b, s, "vm", 512<<20, sparse{1 << 17, 16}).Snapshot, "mem")
	ctx := context.Background()
	dst := make([]byte, cas.SlotBytes)
	for name, off := range map[string]uint64{"chunk": 0, "zero": 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			slot := off
			for b.Loop() {
				if err := im.ReadSlot(ctx, slot, dst); err != nil {
					b.Fatal(err)
				}
				slot = (slot + 16*101) % (1 << 17)
			}
		})
	}
	b.Run("is-zero", func(b *testing.B) {
		slot := uint64(0)
		for b.Loop() {
			im.IsZero(ctx, slot)
			slot = (slot + 16*101) % (1 << 17)
		}
	})
}

// ready is changes whose reading costs a copy.
type ready struct {
	sparse
	pages []byte
}

func (r ready) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, r.pages[slot%64*cas.SlotBytes:])
	dst[0], dst[1], dst[2], dst[3] = byte(slot), byte(slot>>8), byte(slot>>16), byte(slot>>24)
	return nil
}

// trusting is a cas.Store whose Put costs nothing, to leave what this package costs.
type trusting struct{ *castest.Memory }

func (trusting) Put(_ context.Context, chunks []cas.Chunk, hints []cas.Hint) (cas.PutStats, error) {
	for i := range hints {
		hints[i] = cas.Hint{Pack: cas.PackID{1}, Offset: uint32(i * 4096), Bytes: 4096}
	}
	return cas.PutStats{Chunks: len(chunks), NewChunks: len(chunks)}, nil
}

// BenchmarkPutImage: MB/s of changed slots, on all cores; GOMAXPROCS=1 for one. "same" is a second put of the same bytes.
func BenchmarkPutImage(b *testing.B) {
	pages := make([]byte, 64*cas.SlotBytes)
	rand.NewChaCha8([32]byte{}).Read(pages)
	for _, c := range []struct {
		name  string
		store cas.Store
		ch    Changes
	}{
		{"new/free-put", trusting{castest.NewMemory()}, ready{sparse{1 << 14, 1}, pages}},
		{"new/memory", castest.NewMemory(), ready{sparse{1 << 14, 1}, pages}},
		{"zero", castest.NewMemory(), ready{sparse{1 << 14, 1 << 14}, make([]byte, 64*cas.SlotBytes)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := reopen(b, b.TempDir(), c.store)
			ctx := context.Background()
			slots := 0
			for range c.ch.Slots() {
				slots++
			}
			b.SetBytes(int64(slots) * cas.SlotBytes)
			b.ReportAllocs()
			for b.Loop() {
				txn, err := s.Begin(ctx, SnapshotID{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := txn.PutImage(ctx, ImageSpec{"mem", 64 << 20}, c.ch); err != nil {
					b.Fatal(err)
				}
				txn.Abort()
			}
		})
	}
}

// workload is the pages one command changes: hot ones, the same each time, in runs; and cold ones anywhere.
type workload struct {
	rng  *rand.Rand
	hot  []uint64
	cold int // pages, in runs of 1 to 4
	next uint64
}

func (w *workload) delta(slots uint64) delta {
	ch := delta{}
	put := func(slot uint64) {
		w.next++
		ch[slot] = page(w.next)
	}
	for _, slot := range w.hot {
		put(slot)
	}
	for want := len(ch) + w.cold; len(ch) < want; {
		slot := w.rng.Uint64N(slots)
		for i := range 1 + w.rng.Uint64N(4) {
			if len(ch) < want && slot+i < slots {
				put(slot + i)
			}
		}
	}
	return ch
}

// metadataOf gives bytes of metadata of each of some checkpoints of 512 MiB, a quarter of it non-zero.
func metadataOf(tb testing.TB, checkpoints, hotPages, coldPages int) []int64 {
	tb.Helper()
	const slots = 1 << 17
	m := castest.NewMemory()
	s := reopen(tb, tb.TempDir(), m)
	newVM(tb, s, "vm")
	w := &workload{rng: rand.New(rand.NewPCG(7, 7)), cold: coldPages, next: 1 << 20}
	for len(w.hot) < hotPages {
		slot := w.rng.Uint64N(slots / 4)
		for i := range 1 + w.rng.Uint64N(4) {
			w.hot = append(w.hot, slot+i)
		}
	}
	checkpoint(tb, s, "vm", slots*cas.SlotBytes, firstQuarter{slots / 4})
	var each []int64
	for range checkpoints {
		ch := w.delta(slots / 4) // what changes is what is in use
		c := checkpoint(tb, s, "vm", slots*cas.SlotBytes, ch)
		each = append(each, c.NewBytes-int64(len(ch))*(cas.SlotBytes+48))
	}
	return each
}

type firstQuarter struct{ slots uint64 }

func (q firstQuarter) Slots() iter.Seq[uint64] { return sparse{q.slots, 1}.Slots() }
func (q firstQuarter) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, fmt.Sprint("first ", slot))
	return nil
}

// Rewriting every leaf touched would be 250 KB.
func TestACheckpointOfScatteredPagesNeedsLittleMetadata(t *testing.T) {
	for _, c := range []struct {
		hot        int
		most, mean int64 // bytes
	}{{160, 24 << 10, 24 << 10}, {120, 80 << 10, 45 << 10}} {
		each := metadataOf(t, 25, c.hot, 160-c.hot)
		sum := int64(0)
		for i, n := range each {
			if sum += n; n > c.most || i == 0 && n > 24<<10 {
				t.Errorf("%d of 160 pages hot: checkpoint %d has %d bytes of metadata", c.hot, i, n)
			}
		}
		if sum/25 > c.mean {
			t.Errorf("%d of 160 pages hot: %d bytes of metadata in the mean", c.hot, sum/25)
		}
	}
}

// BenchmarkMetadata: metadata bytes of a checkpoint, the mean of 100, for 160 pages of which so many are hot.
func BenchmarkMetadata(b *testing.B) {
	for _, hot := range []int{160, 120, 80, 0} {
		b.Run(fmt.Sprintf("hot=%d", hot), func(b *testing.B) {
			for b.Loop() {
				each := metadataOf(b, 100, hot, 160-hot)
				var sum, most int64
				for _, n := range each {
					sum, most = sum+n, max(most, n)
				}
				b.ReportMetric(float64(sum)/100, "B/checkpoint")
				b.ReportMetric(float64(each[0]), "B/first")
				b.ReportMetric(float64(most), "B/most")
			}
		})
	}
}
