package local_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func benchStore(b *testing.B, c local.Config) *local.Store {
	c.Dir = b.TempDir()
	s, err := local.Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// pages are of one kind of castest.Chunks: 0 compress to about half, 7 are noise.
func pages(h cas.Hasher, n, kind int) []cas.Chunk {
	base := castest.Chunks(h, 1, 512)
	var out []cas.Chunk
	for i := range n {
		data := append([]byte(nil), base[(i%32)*16+kind].Data...)
		binary.LittleEndian.PutUint64(data, uint64(i)+1<<40)
		out = append(out, cas.Chunk{Hash: h.Sum(data), Kind: cas.KindData, Data: data})
	}
	return out
}

// Put of pages nobody has, in batches of 1024, hashed by the caller; workers=1 is what one core does.
func BenchmarkPut(b *testing.B) {
	for _, kind := range []struct {
		name string
		kind int
	}{{"typical", 0}, {"noise", 7}} {
		for _, workers := range []int{1, 0} {
			b.Run(fmt.Sprintf("%s/workers=%d", kind.name, workers), func(b *testing.B) {
				s := benchStore(b, local.Config{Workers: workers})
				const batch = 1024
				chunks := pages(s.Hasher(), batch, kind.kind)
				hints := make([]cas.Hint, batch)
				h := s.Hasher()
				b.SetBytes(batch * cas.SlotBytes)
				stored, n := int64(0), uint64(0)
				for b.Loop() {
					n++
					for i := range chunks { // other pages every time
						binary.LittleEndian.PutUint64(chunks[i].Data[8:], n<<20)
						chunks[i].Hash = h.Sum(chunks[i].Data)
					}
					st, err := s.Put(b.Context(), chunks, hints)
					if err != nil || st.NewChunks != batch {
						b.Fatal(st, err)
					}
					stored += st.NewBytes
				}
				b.ReportMetric(float64(stored)/float64(n)/batch, "stored-B/page")
			})
		}
	}
}

func BenchmarkPutKnown(b *testing.B) {
	s := benchStore(b, local.Config{})
	chunks := pages(s.Hasher(), 1024, 0)
	hints := make([]cas.Hint, len(chunks))
	s.Put(b.Context(), chunks, hints)
	b.SetBytes(1024 * cas.SlotBytes)
	for b.Loop() {
		s.Put(b.Context(), chunks, hints)
	}
}

// filled has n pages in sealed packs, indexed by runs.
func filled(b *testing.B, n int) (*local.Store, []cas.Ref) {
	s := benchStore(b, local.Config{TargetPackBytes: 4 << 20}.Inline(4))
	chunks := pages(s.Hasher(), n, 0)
	hints := make([]cas.Hint, n)
	if _, err := s.Put(b.Context(), chunks, hints); err != nil {
		b.Fatal(err)
	}
	if err := s.Seal(b.Context()); err != nil {
		b.Fatal(err)
	}
	refs := make([]cas.Ref, n)
	for i := range refs {
		refs[i] = cas.Ref{Hash: chunks[i].Hash, Hint: hints[i]}
	}
	return s, refs
}

func BenchmarkGet(b *testing.B) {
	s, refs := filled(b, 40_000)
	st := s.Stats()
	b.Logf("%d packs, %d tables, %d runs, %.1f bytes a chunk on disk, %.2f in memory", st.Packs, st.IndexTables, st.IndexRuns,
		float64(st.IndexBytes)/float64(st.Records), float64(st.IndexMemory)/float64(st.Records))
	rng := rand.New(rand.NewPCG(1, 1))
	for _, hinted := range []bool{true, false} {
		b.Run(fmt.Sprintf("hint=%v", hinted), func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				r := refs[rng.IntN(len(refs))]
				if !hinted {
					r.Hint = cas.Hint{}
				}
				var err error
				if buf, err = s.Get(b.Context(), r, buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHasAbsent(b *testing.B) {
	s, _ := filled(b, 40_000)
	h := s.Hasher()
	hs := make([]cas.Hash, 1000)
	for i := range hs {
		hs[i] = h.Sum([]byte(fmt.Sprint(i)))
	}
	for b.Loop() {
		s.Has(b.Context(), hs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
}

func BenchmarkGetMany(b *testing.B) {
	s, refs := filled(b, 40_000)
	scattered := append([]cas.Ref(nil), refs...)
	rand.Shuffle(len(scattered), func(i, j int) { scattered[i], scattered[j] = scattered[j], scattered[i] })
	for name, rs := range map[string][]cas.Ref{"200 in a row": refs[5000:5200], "8192 in a row": refs[:8192], "1024 scattered": scattered[:1024]} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(rs)) * cas.SlotBytes)
			for b.Loop() {
				err := s.GetMany(b.Context(), rs, func(_ int, _ []byte, err error) error { return err })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSync(b *testing.B) {
	s := benchStore(b, local.Config{})
	chunks := pages(s.Hasher(), 200, 0)
	h := s.Hasher()
	n := uint64(0)
	for b.Loop() {
		n++
		for i := range chunks {
			binary.LittleEndian.PutUint64(chunks[i].Data[8:], n<<20)
			chunks[i].Hash = h.Sum(chunks[i].Data)
		}
		s.Put(b.Context(), chunks, nil)
		if err := s.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
