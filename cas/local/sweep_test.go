package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

func sweep(t *testing.T, s *local.Store, live func(cas.Hash) bool) cas.SweepStats {
	t.Helper()
	w, err := s.BeginSweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	st, err := w.Run(t.Context(), live, cas.SweepBudget{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestSweepOfEverythingFreesEverything(t *testing.T) {
	s := mustOpen(t, local.Config{Dir: t.TempDir(), TargetPackBytes: 50_000})
	chunks := castest.Chunks(s.Hasher(), 1, 300)
	put(t, s, chunks)
	before := s.Stats()
	st := sweep(t, s, func(cas.Hash) bool { return false })
	if st.DeadChunks != 300 || st.FreedBytes < before.PackBytes {
		t.Errorf("%+v of %d bytes", st, before.PackBytes)
	}
	if after := s.Stats(); after.Packs != 0 || after.Records != 0 {
		t.Errorf("%d packs, %d records are left", after.Packs, after.Records)
	}
	lack(t, s, chunks)
	put(t, s, chunks)
	have(t, s, chunks)
}

func TestSweepKeepsWhatLivesAndFreesTheRest(t *testing.T) {
	c := local.Config{Dir: t.TempDir(), TargetPackBytes: 50_000}
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 300)
	refs := put(t, s, chunks)
	live := map[cas.Hash]bool{}
	var kept, gone []cas.Chunk
	for i, ch := range chunks {
		if i%3 == 0 {
			live[ch.Hash] = true
			kept = append(kept, ch)
		} else {
			gone = append(gone, ch)
		}
	}
	before := s.Stats().PackBytes
	st := sweep(t, s, func(h cas.Hash) bool { return live[h] })
	if st.LiveChunks != int64(len(kept)) || st.DeadChunks != int64(len(gone)) {
		t.Errorf("%+v", st)
	}
	if after := s.Stats(); after.PackBytes > before*42/100 || after.Records != int64(len(kept)) {
		t.Errorf("%d of %d bytes are left for a third of the chunks", after.PackBytes, before)
	}
	check := func(s *local.Store) {
		have(t, s, kept)
		lack(t, s, gone)
		for i := 0; i < len(refs); i += 3 { // the hints are stale now
			if _, err := s.Get(t.Context(), refs[i], nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	check(s)
	s.Close()
	check(mustOpen(t, c))
}

// A chunk that nothing marks, and that a Put refers to while the collector marks, must stay.
func TestChunkReferredToDuringASweepStays(t *testing.T) {
	s := mustOpen(t, local.Config{Dir: t.TempDir()})
	chunks := castest.Chunks(s.Hasher(), 1, 60)
	put(t, s, chunks)
	w, err := s.BeginSweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	if _, err := s.BeginSweep(t.Context()); !errors.Is(err, local.ErrSweeping) {
		t.Errorf("a second sweep: %v", err)
	}
	if st, err := s.Put(t.Context(), chunks[:10], nil); err != nil || st.NewChunks != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	if _, err := s.Has(t.Context(), []cas.Hash{chunks[10].Hash}); err != nil {
		t.Fatal(err)
	}
	asked := 0
	_, err = w.Run(t.Context(), func(h cas.Hash) bool {
		// Each of 60 chunks is asked for when the packs are chosen, when this one is measured, and when it is copied.
		// At the last question the others are decided on, and the pack is condemned: what is put now is stored anew.
		if asked++; asked == 3*60 {
			put(t, s, chunks[20:25])
		}
		return false
	}, cas.SweepBudget{})
	if err != nil {
		t.Fatal(err)
	}
	if asked != 3*60 {
		t.Fatalf("asked %d times", asked)
	}
	have(t, s, chunks[:11])
	have(t, s, chunks[20:25])
	lack(t, s, chunks[11:20])
	lack(t, s, chunks[25:])
}

func TestSweepJoinsSmallPacks(t *testing.T) {
	s := mustOpen(t, local.Config{Dir: t.TempDir()})
	var all []cas.Chunk
	for i := range 6 {
		chunks := castest.Chunks(s.Hasher(), uint64(i), 10)
		put(t, s, chunks)
		all = append(all, chunks...)
		if err := s.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	st := sweep(t, s, func(cas.Hash) bool { return true })
	if st.RemovedPacks != 6 || st.MadePacks != 1 || s.Stats().Packs != 1 {
		t.Errorf("%+v", st)
	}
	have(t, s, all)
	if st := sweep(t, s, func(cas.Hash) bool { return true }); st.RemovedPacks != 0 {
		t.Errorf("again: %+v", st)
	}
}

func TestSweepNeverGivesADamagedRecordANewSeal(t *testing.T) {
	c := local.Config{Dir: t.TempDir()}
	s := mustOpen(t, c)
	chunks := castest.Chunks(s.Hasher(), 1, 20)
	refs := put(t, s, chunks)
	if err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	damage(t, c.Dir, s, refs[4].Hint)
	st := sweep(t, s, func(h cas.Hash) bool { return h == chunks[4].Hash || h == chunks[5].Hash })
	if st.DamagedPacks != 1 || st.RemovedPacks != 0 {
		t.Errorf("%+v", st)
	}
	have(t, s, chunks[5:6])
	if _, err := s.Get(t.Context(), cas.Ref{Hash: chunks[4].Hash}, nil); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

func TestPowerCutDuringASweepLosesNothingThatLives(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		for n := 1; ; n++ {
			fs := castest.NewCrashFS(seed*30_000 + uint64(n))
			s := mustOpen(t, crashConfig(fs, seed))
			chunks := castest.Chunks(s.Hasher(), seed, 40)
			refs := put(t, s, chunks)
			live := map[cas.Hash]bool{}
			for i, c := range chunks {
				live[c.Hash] = i%3 == 0
			}
			fs.CutAt(n)
			w, err := s.BeginSweep(t.Context())
			if err == nil {
				_, err = w.Run(t.Context(), func(h cas.Hash) bool { return live[h] }, cas.SweepBudget{})
			}
			cut := fs.HasCut()
			if err != nil && !cut {
				t.Fatal(err)
			}
			after := fs.AfterCrash()
			s.Close()
			s = mustOpen(t, crashConfig(after, seed+1))
			for i, c := range chunks {
				got, err := s.Get(t.Context(), refs[i], nil)
				if live[c.Hash] && err != nil || err == nil && !bytes.Equal(got, c.Data) {
					t.Fatalf("cut at operation %d: chunk %d: %d bytes, %v", n, i, len(got), err)
				}
			}
			s.Close()
			if !cut {
				return
			}
		}
	})
}

// Readers, writers and sweeps at once, against an oracle of what lives.
func TestSweepBesideReadersAndWriters(t *testing.T) {
	s := mustOpen(t, local.Config{Dir: t.TempDir(), TargetPackBytes: 60_000})
	keep := castest.Chunks(s.Hasher(), 1, 100)
	live := map[cas.Hash]bool{}
	for _, c := range keep {
		live[c.Hash] = true
	}
	refs := put(t, s, keep)
	stop, failed := make(chan struct{}), make(chan error, 3)
	go func() { // what lives is always readable
		for i := 0; ; i++ {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			r := refs[i%len(refs)]
			if got, err := s.Get(t.Context(), r, nil); err != nil || !bytes.Equal(got, keep[i%len(refs)].Data) {
				failed <- fmt.Errorf("chunk %d: %w", i%len(refs), err)
				return
			}
		}
	}()
	go func() { // and in bulk
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			err := s.GetMany(t.Context(), refs, func(_ int, _ []byte, err error) error { return err })
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 8 {
		put(t, s, castest.Chunks(s.Hasher(), uint64(100+round), 80)) // garbage of this round
		put(t, s, keep[rng.IntN(50):])
		sweep(t, s, func(h cas.Hash) bool { return live[h] })
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	have(t, s, keep)
	if st := s.Stats(); st.Records > 200 {
		t.Errorf("%d records are left of 100 that live", st.Records)
	}
}

// Two packs may hold the same chunk after a crash between a copy and the removal of what it was copied from.
func TestSweepJoinsTwoCopiesIntoOne(t *testing.T) {
	a, b := mustOpen(t, local.Config{Dir: t.TempDir()}), mustOpen(t, local.Config{Dir: t.TempDir()})
	chunks := castest.Chunks(a.Hasher(), 1, 20)
	put(t, a, chunks)
	put(t, b, chunks[5:])
	if err := errors.Join(a.Seal(t.Context()), b.Seal(t.Context())); err != nil {
		t.Fatal(err)
	}
	p := b.Packs()[0]
	r, err := b.OpenPack(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	content, err := cas.ParseHash(p.Name[:64])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.ImportPack(t.Context(), content, r, p.Bytes); err != nil {
		t.Fatal(err)
	}
	sweep(t, a, func(cas.Hash) bool { return true })
	if st := a.Stats(); st.Packs != 1 || st.Records != 20 {
		t.Errorf("%d packs, %d records", st.Packs, st.Records)
	}
	if _, err := a.Verify(t.Context(), 1, func(d cas.Damage) { t.Error(d) }); err != nil {
		t.Error(err)
	}
	have(t, a, chunks)
}
