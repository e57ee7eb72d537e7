package remote_test

import (
	"bytes"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/pack"
	"flash/cas/remote"
	"time"
)

// made is a sealed pack for tests.
type made struct {
	remote.PackSource
	bytes  []byte
	chunks []cas.Chunk
	refs   []cas.Ref // with hints
}

// makePack seals chunks into a pack. The id comes from the seed.
func makePack(t testing.TB, seed uint64, chunks []cas.Chunk) made {
	t.Helper()
	var out bytes.Buffer
	id := cas.PackID{1, byte(seed), byte(seed >> 8), byte(seed >> 16)}
	b := pack.NewBuilder(&out, pack.Header{ID: id, Created: time.Unix(1_700_000_000+int64(seed), 0).UTC()})
	enc := pack.NewEncoder(pack.S2)
	m := made{chunks: chunks}
	for i := range chunks {
		e, err := b.Add(enc.AppendRecord(nil, &chunks[i]))
		if err != nil {
			t.Fatal(err)
		}
		m.refs = append(m.refs, cas.Ref{Hash: chunks[i].Hash, Hint: cas.Hint{Pack: id, Offset: e.Offset, Bytes: e.Bytes}})
	}
	entries, trailer, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	m.bytes = out.Bytes()
	m.PackSource = remote.PackSource{ID: id, ContentHash: trailer.ContentHash, Bytes: int64(out.Len()), Reader: bytes.NewReader(m.bytes), Entries: entries}
	return m
}

// somePacks makes packs of different chunks.
func somePacks(t testing.TB, seed uint64, packs, chunks int) []made {
	t.Helper()
	var all []made
	for i := range packs {
		all = append(all, makePack(t, seed*1000+uint64(i), castest.Chunks(cas.NewHasher(nil), seed*1000+uint64(i), chunks)))
	}
	return all
}

func sources(packs []made) []remote.PackSource {
	var s []remote.PackSource
	for _, p := range packs {
		s = append(s, p.PackSource)
	}
	return s
}

func mustOpen(t testing.TB, c remote.Config) *remote.Remote {
	t.Helper()
	r, err := remote.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func mustUpload(t testing.TB, r *remote.Remote, packs []made) remote.UploadStats {
	t.Helper()
	st, err := r.Upload(t.Context(), sources(packs), nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func mustRefresh(t testing.TB, r *remote.Remote) {
	t.Helper()
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// mustRead reads all chunks of packs one by one and together, with hints and without.
func mustRead(t testing.TB, r *remote.Remote, packs []made) {
	t.Helper()
	for _, p := range packs {
		for _, hints := range []bool{true, false} {
			refs := bytesRefs(p.refs, hints)
			for i := 0; i < len(refs); i += 7 {
				got, err := r.Get(t.Context(), refs[i], nil)
				if err != nil || !bytes.Equal(got, p.chunks[i].Data) {
					t.Fatalf("chunk %d, hints %v: %d bytes, %v", i, hints, len(got), err)
				}
			}
			calls := 0
			err := r.GetMany(t.Context(), refs, func(i int, data []byte, err error) error {
				calls++
				if err != nil || !bytes.Equal(data, p.chunks[i].Data) {
					t.Errorf("chunk %d of many, hints %v: %d bytes, %v", i, hints, len(data), err)
				}
				return nil
			})
			if err != nil || calls != len(refs) {
				t.Fatalf("%d of %d answered: %v", calls, len(refs), err)
			}
		}
	}
}

func bytesRefs(refs []cas.Ref, hints bool) []cas.Ref {
	out := make([]cas.Ref, len(refs))
	for i, r := range refs {
		if out[i] = r; !hints {
			out[i].Hint = cas.Hint{}
		}
	}
	return out
}
