package local_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func mustOpen(t *testing.T, c local.Config) *local.Store {
	t.Helper()
	s, err := local.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put stores chunks and syncs.
func put(t *testing.T, s *local.Store, chunks []cas.Chunk) []cas.Ref {
	t.Helper()
	hints := make([]cas.Hint, len(chunks))
	if _, err := s.Put(t.Context(), chunks, hints); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	refs := make([]cas.Ref, len(chunks))
	for i := range refs {
		refs[i] = cas.Ref{Hash: chunks[i].Hash, Hint: hints[i]}
	}
	return refs
}

// have checks that all chunks are there, found by hash alone.
func have(t *testing.T, s *local.Store, chunks []cas.Chunk) {
	t.Helper()
	for i, c := range chunks {
		got, err := s.Get(t.Context(), cas.Ref{Hash: c.Hash}, nil)
		if err != nil || !bytes.Equal(got, c.Data) {
			t.Fatalf("chunk %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// lack checks that none of the chunks is there.
func lack(t *testing.T, s *local.Store, chunks []cas.Chunk) {
	t.Helper()
	for i, c := range chunks {
		if got, err := s.Get(t.Context(), cas.Ref{Hash: c.Hash}, nil); !errors.Is(err, cas.ErrNotFound) {
			t.Fatalf("chunk %d: %d bytes, %v; want ErrNotFound", i, len(got), err)
		}
	}
}

func TestSecondOpenOfOneFolderIsRefused(t *testing.T) {
	c := local.Config{Dir: t.TempDir()}
	s := mustOpen(t, c)
	if _, err := local.Open(t.Context(), c); !errors.Is(err, local.ErrLocked) {
		t.Fatalf("%v, want ErrLocked", err)
	}
	s.Close()
	mustOpen(t, c)
}

func TestWrongKeyIsRefusedAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, local.Config{Dir: dir, Key: &[32]byte{1}})
	put(t, s, castest.Chunks(s.Hasher(), 1, 3))
	s.Close()
	for _, key := range []*[32]byte{nil, {2}} {
		if _, err := local.Open(t.Context(), local.Config{Dir: dir, Key: key}); !errors.Is(err, local.ErrWrongKey) {
			t.Errorf("key %v: %v, want ErrWrongKey", key, err)
		}
	}
	mustOpen(t, local.Config{Dir: dir, Key: &[32]byte{1}})
}

func TestReopenedStoreContinuesItsPackAndKeepsItsHints(t *testing.T) {
	c := local.Config{Dir: t.TempDir()}
	var refs []cas.Ref
	var chunks []cas.Chunk
	for i := range 5 {
		s := mustOpen(t, c)
		more := castest.Chunks(s.Hasher(), uint64(i), 10)
		refs = append(refs, put(t, s, more)...)
		chunks = append(chunks, more...)
		have(t, s, chunks)
		s.Close()
	}
	s := mustOpen(t, c)
	if st := s.Stats(); st.Packs != 1 || st.Records != 50 {
		t.Errorf("%d packs with %d records, want 1 with 50", st.Packs, st.Records)
	}
	for _, r := range refs {
		if _, err := s.Get(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.HintMisses != 0 {
		t.Errorf("%d hints are stale", st.HintMisses)
	}
}

func TestFullPacksAreSealedUnderTheNameOfTheirContent(t *testing.T) {
	c := local.Config{Dir: t.TempDir(), TargetPackBytes: 50_000}
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 200)
	put(t, s, chunks)
	if err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Packs() {
		if !p.Sealed || !strings.HasSuffix(p.Name, ".pack") || len(p.Name) != 64+5 {
			t.Errorf("%+v", p)
		}
		if p.Bytes > 50_000+40*200+128 {
			t.Errorf("%s has %d bytes", p.Name, p.Bytes)
		}
	}
	have(t, s, chunks)
}
