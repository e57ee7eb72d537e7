package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func TestRepairQuarantinesWhatIsDamagedAndKeepsWhatIsGood(t *testing.T) {
	for _, sealed := range []bool{true, false} {
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
		whole := castest.Chunks(s.Hasher(), 2, 5)
		found := 0
		st, err := s.Repair(t.Context(), func(cas.Damage) { found++ })
		if err != nil || found == 0 || len(st.Quarantined) != 1 || st.Salvaged != 29 || st.LostRecords != 1 {
			t.Fatalf("sealed %v: %+v, %d found, %v", sealed, st, found, err)
		}
		put(t, s, whole)
		check := func(s *local.Store) {
			t.Helper()
			have(t, s, append(append([]cas.Chunk{}, chunks[:11]...), chunks[12:]...))
			have(t, s, whole)
			if got, err := s.Get(t.Context(), refs[11], nil); !errors.Is(err, cas.ErrNotFound) || len(got) > 0 {
				t.Errorf("the lost chunk: %d bytes, %v", len(got), err)
			}
			if _, err := s.Verify(t.Context(), 1, func(d cas.Damage) { t.Error(d) }); err != nil {
				t.Error(err)
			}
		}
		check(s)
		if _, err := os.Stat(filepath.Join(c.Dir, "packs", st.Quarantined[0])); err != nil {
			t.Error(err)
		}
		if again, err := s.Repair(t.Context(), func(d cas.Damage) { t.Error(d) }); err != nil || len(again.Quarantined) != 0 {
			t.Errorf("again: %+v, %v", again, err)
		}
		s.Close()
		check(mustOpen(t, c))
	}
}

func TestPowerCutDuringARepairLosesNoGoodRecord(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		for n := 1; ; n++ {
			fs := castest.NewCrashFS(seed*70_000 + uint64(n))
			c := crashConfig(fs, seed)
			s := mustOpen(t, c)
			chunks := castest.Chunks(s.Hasher(), seed, 40)
			refs := put(t, s, chunks)
			if err := s.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, p := range s.Packs() {
				if p.ID == refs[7].Hint.Pack {
					if err := fs.FlipBit(filepath.Join(c.Dir, "packs", p.Name), int64(refs[7].Hint.Offset+50)); err != nil {
						t.Fatal(err)
					}
				}
			}
			fs.CutAt(n)
			_, err := s.Repair(t.Context(), func(cas.Damage) {})
			cut := fs.HasCut()
			if err != nil && !cut {
				t.Fatal(err)
			}
			after := fs.AfterCrash()
			s.Close()
			s = mustOpen(t, crashConfig(after, seed+1))
			have(t, s, append(append([]cas.Chunk{}, chunks[:7]...), chunks[8:]...))
			if _, err := s.Get(t.Context(), refs[7], nil); err == nil {
				t.Fatal("the damaged chunk was served")
			}
			s.Close()
			if !cut {
				return
			}
		}
	})
}

func TestPackIsDumpedWithItsDamage(t *testing.T) {
	c := local.Config{Dir: t.TempDir()}
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 30)
	refs := put(t, s, chunks)
	damage(t, c.Dir, s, refs[3].Hint)
	d, err := s.DumpPack(t.Context(), s.PackNames()[0][:12])
	if err != nil || len(d.Records) != 29 || d.DamagedBytes != int64(refs[3].Hint.Bytes) {
		t.Errorf("%d records, %d bytes damaged, %v", len(d.Records), d.DamagedBytes, err)
	}
	if _, err := s.DumpPack(t.Context(), ""); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("no name: %v", err)
	}
}

// A record of a pack without footer is named by the index and by what is left of it, whichever byte is flipped.
func TestDamagedRecordOfAnOpenPackIsNamedWhicheverByteIsFlipped(t *testing.T) {
	c := local.Config{Dir: t.TempDir()}
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 3)
	refs := put(t, s, chunks)
	path := filepath.Join(c.Dir, "packs", s.PackNames()[0])
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flip := func(at int64) {
		b := make([]byte, 1)
		f.ReadAt(b, at)
		b[0] ^= 0x20
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	for at := range int64(refs[1].Hint.Bytes) {
		if at > 60 && at%101 != 0 {
			continue
		}
		flip(int64(refs[1].Hint.Offset) + at)
		named := false
		if _, err := s.Verify(t.Context(), 1, func(d cas.Damage) { named = named || d.Hash == chunks[1].Hash }); err != nil || !named {
			t.Errorf("byte %d: named %v, %v", at, named, err)
		}
		flip(int64(refs[1].Hint.Offset) + at)
	}
}
