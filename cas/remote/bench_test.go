package remote_test

import (
	"bytes"
	"slices"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/castest"
	"flash/cas/remote"
)

// BenchmarkUpload: bytes of packs, against the same bytes put with nothing around.
func BenchmarkUpload(b *testing.B) {
	packs := somePacks(b, 1, 4, 6000) // some 14 MB each
	total := int64(0)
	for _, p := range packs {
		total += p.Bytes
	}
	b.Run("plain puts", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			bk := newBucket()
			for _, p := range packs {
				if _, err := bk.Put(b.Context(), "packs/x", bytes.NewReader(p.bytes), p.Bytes, bucket.Condition{}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("packs", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			mustUpload(b, mustOpen(b, remote.Config{Bucket: newBucket()}), packs)
		}
	})
}

// BenchmarkGetMany: plain bytes of pages in the order of a pack, and in none.
func BenchmarkGetMany(b *testing.B) {
	p := makePack(b, 1, castest.Chunks(cas.NewHasher(nil), 1, 6000))
	bk := uploaded(b, []made{p})
	for _, c := range []struct{ name, dir string }{{"cached", b.TempDir()}, {"fetched", ""}} {
		b.Run(c.name, func(b *testing.B) {
			r := mustOpen(b, remote.Config{Bucket: bk, CacheDir: c.dir})
			mustRefresh(b, r)
			b.SetBytes(6000 * cas.SlotBytes)
			for b.Loop() {
				getAll(b, r, p)
			}
		})
	}
}

// BenchmarkGet: one page of a cached window, with a hint and without.
func BenchmarkGet(b *testing.B) {
	p := makePack(b, 1, castest.Chunks(cas.NewHasher(nil), 1, 6000))
	r := mustOpen(b, remote.Config{Bucket: uploaded(b, []made{p}), CacheDir: b.TempDir()})
	mustRefresh(b, r)
	getAll(b, r, p)
	for name, refs := range map[string][]cas.Ref{"hinted": p.refs, "by index": bytesRefs(p.refs, false)} {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			for i := 0; b.Loop(); i++ {
				var err error
				if buf, err = r.Get(b.Context(), refs[i*37%len(refs)], buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHas: look-ups in an index of a million entries in several runs, of which none is there.
func BenchmarkHas(b *testing.B) {
	bk := newBucket()
	r := mustOpen(b, remote.Config{Bucket: bk})
	for i := range 50 {
		mustUpload(b, r, somePacks(b, uint64(i), 1, 4000))
	}
	mustRefresh(b, r)
	hs := make([]cas.Hash, 1000)
	for i := range hs {
		hs[i] = cas.NewHasher(nil).Sum([]byte{byte(i), byte(i >> 8), 77})
	}
	b.ReportMetric(float64(r.Stats().IndexBytes)/float64(r.Stats().Entries), "B/entry")
	for b.Loop() {
		if slices.Contains(r.Has(hs), true) {
			b.Fatal("found what isn't there")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/chunk")
}
