package bench

import (
	"context"
	"iter"
	"math/rand/v2"
	"runtime"
	"time"

	"flash/cas"
	"flash/store"
)

// pages is a made delta of slots 0 to len(data)/4096.
type pages []byte

func (p pages) Slots() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for slot := range uint64(len(p) / cas.SlotBytes) {
			if !yield(slot) {
				return
			}
		}
	}
}

func (p pages) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, p[slot*cas.SlotBytes:])
	return nil
}

// ingestMiB is what one round hashes and stores.
const ingestMiB = 128

// Ingest measures hashing and storing new pages on one core, of incompressible and of typical content (half of each
// page repeats).
func Ingest(ctx context.Context, s *store.Store, rounds int) ([]Figure, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var out []Figure
	for _, kind := range []struct {
		name  string
		fresh int // random bytes at the head of each page
	}{{"incompressible", cas.SlotBytes}, {"typical", cas.SlotBytes / 2}} {
		var rate []float64
		for range rounds {
			data := makePages(ingestMiB, kind.fresh)
			began := time.Now()
			txn, err := s.Begin(ctx, store.SnapshotID{})
			if err != nil {
				return nil, err
			}
			_, err = txn.PutImage(ctx, store.ImageSpec{Name: "mem", Bytes: uint64(len(data))}, data)
			took := time.Since(began)
			txn.Abort()
			if err != nil {
				return nil, err
			}
			rate = append(rate, float64(len(data))/1e6/took.Seconds())
		}
		out = append(out, figure("hash and store, "+kind.name+" pages, one core", "MB/s", "≥ 250", rate))
	}
	return out, nil
}

func makePages(mib, fresh int) pages {
	data := make(pages, mib<<20)
	seed := [32]byte{}
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	source := rand.NewChaCha8(seed)
	for at := 0; at < len(data); at += cas.SlotBytes {
		source.Read(data[at : at+fresh])
	}
	return data
}
