package local

import (
	"bytes"
	"encoding/binary"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"flash/cas"
	"flash/cas/pack"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// memFile is a File of bytes.
type memFile struct{ p []byte }

func (m *memFile) ReadAt(p []byte, at int64) (int, error) { return bytes.NewReader(m.p).ReadAt(p, at) }
func (m *memFile) WriteAt(p []byte, at int64) (int, error) {
	m.p = append(m.p[:at], p...)
	return len(p), nil
}
func (m *memFile) Close() error           { return nil }
func (m *memFile) Sync() error            { return nil }
func (m *memFile) Truncate(n int64) error { m.p = m.p[:n]; return nil }
func (m *memFile) Size() (int64, error)   { return int64(len(m.p)), nil }

// sampleTables are of n chunks in two packs, the same every time.
func sampleTables(n int) ([]*table, []pack.Entry) {
	rng := rand.New(rand.NewPCG(1, 2))
	packs := []*packFile{{id: cas.PackID{1}}, {id: cas.PackID{2}}}
	var all []pack.Entry
	for i := range n {
		e := pack.Entry{Offset: uint32(64 + i*100), Bytes: uint32(49 + rng.IntN(1<<20))}
		for j := 0; j < 32; j += 8 {
			binary.LittleEndian.PutUint64(e.Hash[j:], rng.Uint64())
		}
		all = append(all, e)
	}
	return []*table{newTable(packs[0], all[:n/2]), newTable(packs[1], all[n/2:])}, all
}

func sampleRun(t testing.TB, n int) (*run, []*table, []pack.Entry) {
	t.Helper()
	tables, entries := sampleTables(n)
	f := &memFile{}
	w := newRunWriter(f, int64(n), []*packFile{tables[0].pack, tables[1].pack})
	if err := mergeRuns(w, []runSource{newTableSource(tables[:1]), newTableSource(tables[1:])}); err != nil {
		t.Fatal(err)
	}
	r, err := openRun(f, "sample.run", 1)
	if err != nil {
		t.Fatal(err)
	}
	bindSample(r, tables)
	return r, tables, entries
}

func bindSample(r *run, tables []*table) {
	r.bind(func(id cas.PackID) *packFile {
		if id[0] < 1 || int(id[0]) > len(tables) {
			return nil
		}
		return tables[id[0]-1].pack
	})
}

func TestRunFindsEveryEntryExactly(t *testing.T) {
	for _, n := range []int{2, 63, 64, 65, 1000, 20_000} {
		r, tables, entries := sampleRun(t, n)
		if err := r.verify(); err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			found, err := r.find(nil, keyOf(e.Hash))
			want := location{tables[i/(n/2)%2].pack, e.Offset, e.Bytes}
			if n%2 == 1 && i >= n/2 {
				want.pack = tables[1].pack
			}
			if err != nil || len(found) != 1 || found[0] != want {
				t.Fatalf("%d entries: entry %d: found %+v, want %+v (%v)", n, i, found, want, err)
			}
		}
	}
}

func TestFilterRulesOutMostAbsentKeys(t *testing.T) {
	r, _, _ := sampleRun(t, 50_000)
	rng := rand.New(rand.NewPCG(3, 4))
	passed := 0
	const tries = 100_000
	for range tries {
		var k key
		binary.LittleEndian.PutUint64(k[:], rng.Uint64())
		binary.LittleEndian.PutUint64(k[6:], rng.Uint64())
		if r.filter.mayHold(k) {
			passed++
		}
	}
	if passed > tries*2/100 {
		t.Errorf("%d of %d absent keys pass the filter, want at most 2 %%", passed, tries)
	}
	if perChunk := float64(r.memoryBytes()) / 50_000; perChunk > 1.5 {
		t.Errorf("%.2f bytes a chunk in memory, want at most 1.5", perChunk)
	}
}

func TestMergedRunsHoldWhatTheyWereMadeOf(t *testing.T) {
	a, tables, entries := sampleRun(t, 1000)
	a.packs[1] = nil // swept meanwhile
	f := &memFile{}
	w := newRunWriter(f, a.entries+500, []*packFile{tables[0].pack})
	// The first pack is covered twice: by the old run and by its table.
	if err := mergeRuns(w, []runSource{&fileSource{run: a}, newTableSource(tables[:1])}); err != nil {
		t.Fatal(err)
	}
	r, err := openRun(f, "merged.run", 2)
	if err != nil {
		t.Fatal(err)
	}
	bindSample(r, tables)
	if r.entries != 500 {
		t.Errorf("%d entries, want 500", r.entries)
	}
	for i, e := range entries {
		found, err := r.find(nil, keyOf(e.Hash))
		if want := 1 - i/500; err != nil || len(found) != want {
			t.Fatalf("entry %d: %d places, want %d: %v", i, len(found), want, err)
		}
	}
}

func TestGoldenRunOfVersion1(t *testing.T) {
	name := filepath.Join("testdata", "v1.run")
	r, tables, entries := sampleRun(t, 200)
	now := r.file.(*memFile).p
	if *update {
		if err := os.WriteFile(name, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, now) {
		t.Error("version 1 is written otherwise now")
	}
	r, err = openRun(&memFile{golden}, name, 1)
	if err != nil {
		t.Fatal(err)
	}
	bindSample(r, tables)
	for i, e := range entries {
		if found, err := r.find(nil, keyOf(e.Hash)); err != nil || len(found) != 1 || found[0].offset != e.Offset {
			t.Errorf("entry %d: %+v, %v", i, found, err)
		}
	}
}

// No file makes opening, finding, verifying or merging a run panic.
func FuzzRun(f *testing.F) {
	for _, n := range []int{0, 2, 200} {
		if n == 0 {
			f.Add([]byte{})
			continue
		}
		r, _, _ := sampleRun(f, n)
		f.Add(r.file.(*memFile).p)
	}
	tables, entries := sampleTables(200)
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := openRun(&memFile{p}, "fuzz.run", 1)
		if err != nil {
			return
		}
		bindSample(r, tables)
		for _, e := range entries {
			r.find(nil, keyOf(e.Hash))
		}
		var k key
		r.find(nil, k)
		if r.verify() != nil {
			return
		}
		src := &fileSource{run: r}
		for n := int64(0); ; n++ {
			if _, _, err := src.next(); err == io.EOF {
				if n != r.entries {
					t.Fatalf("%d entries, the trailer says %d", n, r.entries)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A look-up of a present and of an absent key among two million, in a file the page cache has.
func BenchmarkFindAmong2M(b *testing.B) {
	const n = 2_000_000
	tables, entries := sampleTables(n)
	f, err := OSFS{}.Create(filepath.Join(b.TempDir(), "bench.run"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := newRunWriter(f, n, []*packFile{tables[0].pack, tables[1].pack})
	if err := mergeRuns(w, []runSource{newTableSource(tables)}); err != nil {
		b.Fatal(err)
	}
	r, err := openRun(f, "bench.run", 1)
	if err != nil {
		b.Fatal(err)
	}
	bindSample(r, tables)
	rng := rand.New(rand.NewPCG(5, 6))
	var buf [8]location
	b.Run("present", func(b *testing.B) {
		for b.Loop() {
			r.find(buf[:0], keyOf(entries[rng.IntN(n)].Hash))
		}
	})
	b.Run("absent", func(b *testing.B) {
		for b.Loop() {
			h := entries[rng.IntN(n)].Hash
			h[11] ^= 1 // one of the filter's bytes
			r.find(buf[:0], keyOf(h))
		}
	})
	b.Logf("%.1f bytes a chunk on disk, %.2f in memory", float64(r.memoryBytes()+r.entries*runEntryBytes)/n, float64(r.memoryBytes())/n)
}
