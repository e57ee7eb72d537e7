package blockdelta

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
)

// Writers own every fourth sector, so each block is shared by all of them; another goroutine cuts, commits and rolls
// back. Every writer must always read back what it wrote last, and after the last commit the base alone must say so.
func TestSharedBlocksUnderCuts(t *testing.T) {
	const blocks, sector, writers, rounds = 24, 512, 4, 1500
	const sectors = blocks * BlockBytes / sector
	rng := seeded(t)
	base := newMemBase(blocks, rng.Uint64())
	o := open(t, base)
	mine := make([][]byte, sectors) // what each sector holds; written by its owner only
	for s := range mine {
		mine[s] = bytes.Clone(base.data[s*sector : (s+1)*sector])
	}
	var wg sync.WaitGroup
	for w := range writers {
		seed := rng.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			got := make([]byte, sector)
			for i := range rounds {
				s := rng.IntN(sectors/writers)*writers + w
				off := int64(s * sector)
				if err := o.ReadAt(t.Context(), got, off); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got, mine[s]) {
					t.Errorf("sector %d lost the last write of its owner", s)
					return
				}
				var err error
				if rng.IntN(6) == 0 {
					clear(mine[s])
					err = o.Zero(t.Context(), off, sector)
				} else {
					binary.LittleEndian.PutUint64(mine[s][rng.IntN(sector-8):], uint64(i)<<8|uint64(w))
					err = o.WriteAt(t.Context(), mine[s], off)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	ended := make(chan struct{})
	cuts := 0
	go func() {
		defer close(ended)
		for ; ; cuts++ {
			d, err := o.Cut(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			next := base.merged(t, d)
			if again := base.merged(t, d); !bytes.Equal(next.data, again.data) {
				t.Error("an open delta changed")
				return
			}
			if cuts%3 == 1 {
				d.Rollback()
			} else {
				d.Commit(next)
				base = next
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-ended
	if t.Failed() {
		return
	}
	d, err := o.Cut(t.Context())
	must(t, err)
	final := base.merged(t, d)
	for s := range mine {
		if !bytes.Equal(final.data[s*sector:(s+1)*sector], mine[s]) {
			t.Fatalf("sector %d is not in the committed base", s)
		}
	}
	d.Commit(final)
	settle(o)
	if o.ScratchBytes() != 0 {
		t.Fatalf("%d bytes of scratch are in use after %d cuts and a commit of everything", o.ScratchBytes(), cuts)
	}
	t.Logf("%d cuts", cuts)
}
