package store

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"flash/cas"
	"flash/cas/local"
)

func openPacks(t testing.TB, dir string) *local.Store {
	t.Helper()
	chunks, err := local.Open(context.Background(), local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

func TestARealStoreGivesBackAChainAfterAReopen(t *testing.T) {
	dir := t.TempDir()
	chunks := openPacks(t, filepath.Join(dir, "chunks"))
	s := reopen(t, filepath.Join(dir, "store"), chunks)
	newVM(t, s, "vm")
	have := delta{}
	states := map[int]delta{}
	for i := range uint64(12) {
		ch := delta{}
		for k := range uint64(30) {
			ch[(i*31+k*k*7)%(memBytes/cas.SlotBytes)] = page(i*100 + k)
		}
		maps.Copy(have, ch)
		c := checkpoint(t, s, "vm", memBytes, ch)
		states[c.Number] = maps.Clone(have)
	}
	if err := errors.Join(s.Close(), chunks.Close()); err != nil {
		t.Fatal(err)
	}
	chunks = openPacks(t, filepath.Join(dir, "chunks"))
	defer chunks.Close()
	s = reopen(t, filepath.Join(dir, "store"), chunks)
	defer s.Close()
	h, err := s.History(context.Background(), "vm")
	if err != nil || len(h) != len(states) {
		t.Fatalf("%d checkpoints, %v", len(h), err)
	}
	for _, c := range h {
		mustHold(t, image(t, s, c.Snapshot, "mem"), states[c.Number])
	}
}

func TestAFlippedBitInAPackIsRefused(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	chunks := openPacks(t, filepath.Join(dir, "chunks"))
	s := reopen(t, filepath.Join(dir, "store"), chunks)
	newVM(t, s, "vm")
	c := checkpoint(t, s, "vm", memBytes, delta{0: page(1)})
	im := image(t, s, c.Snapshot, "mem")
	e, err := im.entry(ctx, 0)
	if err != nil || e.Hint.IsZero() {
		t.Fatalf("no hint to the page: %v", err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "chunks", "packs", "*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("packs %v, %v", paths, err)
	}
	f, err := os.OpenFile(paths[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	at := int64(e.Hint.Offset) + int64(e.Hint.Bytes) - 100
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := im.ReadSlot(ctx, 0, make([]byte, cas.SlotBytes)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("ReadSlot: %v", err)
	}
	err = im.ReadSlots(ctx, []uint64{0}, func(uint64, []byte) error { t.Error("damaged bytes were given"); return nil })
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("ReadSlots: %v", err)
	}
	if err := errors.Join(s.Close(), chunks.Close()); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkCheckpoint: ms for a whole checkpoint of so many pages on the near tier, syncs included.
func BenchmarkCheckpoint(b *testing.B) {
	for name, pages := range map[string]uint64{"160": 160, "10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			chunks := openPacks(b, filepath.Join(dir, "chunks"))
			defer chunks.Close()
			s := reopen(b, filepath.Join(dir, "store"), chunks)
			defer s.Close()
			newVM(b, s, "vm")
			checkpoint(b, s, "vm", 512<<20, sparse{1 << 17, 8})
			seed := uint64(1 << 20)
			var metadata int64
			for b.Loop() {
				b.StopTimer()
				ch := delta{}
				for k := range pages {
					seed++
					ch[k/3*(1<<17/(pages/3+1))+k%3] = page(seed)
				}
				b.StartTimer()
				c := checkpoint(b, s, "vm", 512<<20, ch)
				metadata = c.NewBytes
			}
			b.ReportMetric(float64(metadata), "B/checkpoint")
		})
	}
}
