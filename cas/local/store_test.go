package local_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

func TestFullDiskRefusesPutsAndLosesNothing(t *testing.T) {
	fs := castest.NewCrashFS(1)
	c := crashConfig(fs, 1)
	c.ReserveBytes = 100_000
	s := mustOpen(t, c)
	fs.SetRoom(200_000)
	chunks := castest.Chunks(s.Hasher(), 1, 200)
	stored := 0
	for ; stored < len(chunks); stored += 5 {
		if _, err := s.Put(t.Context(), chunks[stored:stored+5], nil); err != nil {
			if !errors.Is(err, cas.ErrNoSpace) {
				t.Fatalf("%v, want ErrNoSpace", err)
			}
			break
		}
	}
	if free, _ := fs.FreeBytes(""); stored == 0 || stored == len(chunks) || free < 90_000 {
		t.Fatalf("%d chunks stored, %d bytes free", stored, free)
	}
	have(t, s, chunks[:stored])
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("Sync in spite of the reserve: %v", err)
	}
	fs.SetRoom(-1)
	if _, err := s.Put(t.Context(), chunks, nil); err != nil {
		t.Errorf("with room again: %v", err)
	}
	have(t, s, chunks)
}

func TestDiskThatFillsAmidAWriteLosesNothing(t *testing.T) {
	for room := int64(0); room < 30_000; room += 1_777 {
		fs := castest.NewCrashFS(1)
		c := crashConfig(fs, 1)
		c.ReserveBytes = -1
		s := mustOpen(t, c)
		chunks := castest.Chunks(s.Hasher(), 1, 40)
		put(t, s, chunks[:10])
		fs.SetRoom(room)
		stored := 10
		for ; stored < 40; stored++ {
			if _, err := s.Put(t.Context(), chunks[stored:stored+1], nil); errors.Is(err, cas.ErrNoSpace) {
				break
			} else if err != nil {
				t.Fatalf("room %d: %v, want ErrNoSpace", room, err)
			}
		}
		have(t, s, chunks[:stored])
		fs.SetRoom(-1)
		put(t, s, chunks)
		have(t, s, chunks)
		after := fs.AfterCrash()
		s.Close()
		have(t, mustOpen(t, crashConfig(after, 2)), chunks)
	}
}

// A full disk must not keep anyone from reading: the store opens, and says so when asked to vouch for what it found.
func TestStoreOpensOnAFullDisk(t *testing.T) {
	fs := castest.NewCrashFS(1)
	s := mustOpen(t, crashConfig(fs, 1))
	chunks := castest.Chunks(s.Hasher(), 1, 4)
	put(t, s, chunks)
	after := fs.AfterCrash()
	s.Close()
	after.SetRoom(0)
	c := crashConfig(after, 2)
	c.ReserveBytes = -1
	s = mustOpen(t, c)
	have(t, s, chunks)
	if err := s.Sync(t.Context()); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("Sync: %v, want ErrNoSpace", err)
	}
	after.SetRoom(-1)
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("Sync with room: %v", err)
	}
	have(t, s, chunks)
}

// damage flips a bit in the middle of the record at the hint.
func damage(t *testing.T, dir string, s *local.Store, hint cas.Hint) {
	t.Helper()
	for _, p := range s.Packs() {
		if p.ID != hint.Pack {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "packs", p.Name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 1)
		at := int64(hint.Offset + hint.Bytes/2)
		f.ReadAt(b, at)
		b[0] ^= 0x10
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no pack %x", hint.Pack)
}

func TestFlippedBitIsToldWithItsPlaceAndHealedByTheNextPut(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		c := local.Config{Dir: t.TempDir()}
		s := mustOpen(t, c)
		chunks := castest.Chunks(s.Hasher(), 1, 30)
		refs := put(t, s, chunks)
		if sealed {
			if err := s.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		damage(t, c.Dir, s, refs[11].Hint)
		for _, ref := range []cas.Ref{refs[11], {Hash: refs[11].Hash}} {
			got, err := s.Get(t.Context(), ref, nil)
			var corrupt *cas.CorruptError
			if !errors.As(err, &corrupt) || len(got) > 0 {
				t.Fatalf("%d bytes, %v; want a CorruptError", len(got), err)
			}
			if corrupt.Hash != ref.Hash || corrupt.Offset != int64(refs[11].Hint.Offset) || corrupt.Pack != s.Packs()[0].Name {
				t.Errorf("evidence: %+v", corrupt)
			}
		}
		corruptSeen := 0
		err := s.GetMany(t.Context(), refs, func(i int, data []byte, err error) error {
			if errors.Is(err, cas.ErrCorrupt) && i == 11 {
				corruptSeen++
			} else if err != nil || !bytes.Equal(data, chunks[i].Data) {
				t.Errorf("ref %d: %v", i, err)
			}
			return nil
		})
		if err != nil || corruptSeen != 1 {
			t.Errorf("GetMany: %d corrupt, %v", corruptSeen, err)
		}
		var found []local.Damage
		st, err := s.Verify(t.Context(), 1, func(d local.Damage) { found = append(found, d) })
		if err != nil || len(found) == 0 || st.Damages != int64(len(found)) {
			t.Errorf("Verify: %+v, %v, %v", st, found, err)
		}
		if present, err := s.Has(t.Context(), []cas.Hash{refs[11].Hash}); err != nil || present[0] {
			t.Errorf("Has says that a corrupt chunk is there: %v", err)
		}
		if st, err := s.Put(t.Context(), chunks, nil); err != nil || st.NewChunks != 1 {
			t.Errorf("put again: %+v, %v", st, err)
		}
		have(t, s, chunks)
	}
}

func TestSealedPackWithoutAFooterIsStillRead(t *testing.T) {
	for name, spoil := range map[string]func(p []byte){
		"trailer": func(p []byte) { clear(p[len(p)-10:]) },
		"header":  func(p []byte) { clear(p[:64]) },
		"entries": func(p []byte) { clear(p[len(p)-64-200 : len(p)-64]) },
	} {
		t.Run(name, func(t *testing.T) {
			c := local.Config{Dir: t.TempDir()}
			s := mustOpen(t, c)
			chunks := castest.Chunks(s.Hasher(), 1, 30)
			put(t, s, chunks)
			if err := s.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(c.Dir, "packs", s.Packs()[0].Name)
			s.Close()
			p, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			spoil(p)
			if err := os.WriteFile(file, p, 0o600); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, c)
			have(t, s, chunks)
			found := 0
			if _, err := s.Verify(t.Context(), 1, func(local.Damage) { found++ }); err != nil || found == 0 {
				t.Errorf("Verify finds nothing (%v)", err)
			}
		})
	}
}

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
			if st, err := s.Verify(t.Context(), 1, func(d local.Damage) { t.Error(d) }); err != nil || st.Records != 200 {
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

func TestErrNoSpaceKeepsTheSystemsWords(t *testing.T) {
	fs := castest.NewCrashFS(1)
	s := mustOpen(t, crashConfig(fs, 1))
	fs.FailAt(1, "write", syscall.EDQUOT)
	_, err := s.Put(t.Context(), castest.Chunks(s.Hasher(), 1, 1), nil)
	if !errors.Is(err, cas.ErrNoSpace) || !strings.Contains(err.Error(), "quota") {
		t.Errorf("%v", err)
	}
}
