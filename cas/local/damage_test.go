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
		var found []cas.Damage
		st, err := s.Verify(t.Context(), 1, func(d cas.Damage) { found = append(found, d) })
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
			if _, err := s.Verify(t.Context(), 1, func(cas.Damage) { found++ }); err != nil || found == 0 {
				t.Errorf("Verify finds nothing (%v)", err)
			}
		})
	}
}
