package local_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

// runFiles lists the index runs.
func runFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "index", "*.run"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// indexed gives a store with ten or more packs in runs, closed.
func indexed(t *testing.T) (local.Config, []cas.Chunk) {
	t.Helper()
	c := local.Config{Dir: t.TempDir(), TargetPackBytes: 20_000}.Inline(2)
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 200)
	for i := 0; i < len(chunks); i += 5 {
		put(t, s, chunks[i:i+5])
	}
	if st := s.Stats(); st.Packs < 10 || st.IndexRuns == 0 || st.IndexRuns > 4 {
		t.Fatalf("%d packs in %d runs", st.Packs, st.IndexRuns)
	}
	have(t, s, chunks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return c, chunks
}

func TestIndexIsMadeAgainFromThePacks(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, file string){
		"missing": func(t *testing.T, f string) { os.Remove(f) },
		"empty":   func(t *testing.T, f string) { os.Truncate(f, 0) },
		"torn":    func(t *testing.T, f string) { os.Truncate(f, 1000) },
		"zeroed entries": func(t *testing.T, f string) {
			p, _ := os.ReadFile(f)
			clear(p[:len(p)/2])
			os.WriteFile(f, p, 0o600)
		},
		"flipped bit in the trailer": func(t *testing.T, f string) {
			p, _ := os.ReadFile(f)
			p[len(p)-50] ^= 1
			os.WriteFile(f, p, 0o600)
		},
		"flipped bit in the tables": func(t *testing.T, f string) {
			p, _ := os.ReadFile(f)
			p[len(p)-70] ^= 1
			os.WriteFile(f, p, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, chunks := indexed(t)
			files := runFiles(t, c.Dir)
			if len(files) == 0 {
				t.Fatal("no runs")
			}
			for _, f := range files {
				spoil(t, f)
			}
			s := mustOpen(t, c)
			have(t, s, chunks)
			if st, err := s.Verify(t.Context(), 1, func(d cas.Damage) { t.Error(d) }); err != nil || st.Records != 200 {
				t.Errorf("Verify: %+v, %v", st, err)
			}
		})
	}
}

func TestIndexAheadOfThePacksMisleadsNobody(t *testing.T) {
	c, chunks := indexed(t)
	packs, err := filepath.Glob(filepath.Join(c.Dir, "packs", "*.pack"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packs[:len(packs)/2] {
		os.Remove(p)
	}
	s := mustOpen(t, c)
	lost := 0
	for _, ch := range chunks {
		got, err := s.Get(t.Context(), cas.Ref{Hash: ch.Hash}, nil)
		switch {
		case errors.Is(err, cas.ErrNotFound):
			lost++
		case err != nil || !bytes.Equal(got, ch.Data):
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	if lost == 0 || lost == len(chunks) {
		t.Fatalf("%d chunks lost with half of the packs", lost)
	}
	st, err := s.Put(t.Context(), chunks, nil)
	if err != nil || st.NewChunks != lost {
		t.Errorf("put again: %+v, %v; want %d new", st, err, lost)
	}
	have(t, s, chunks)
}
