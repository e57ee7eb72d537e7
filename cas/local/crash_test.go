package local_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

var (
	seedFlag = flag.Uint64("seed", 1, "first seed of the crash tests")
	seeds    = flag.Uint64("seeds", 2, "how many seeds the crash tests try")
)

// crashConfig makes tiny packs and runs, so that a short history seals, compacts and merges.
func crashConfig(fs local.FS, seed uint64) local.Config {
	now := time.Unix(1_700_000_000, 0)
	return local.Config{
		Dir: "/store", FS: fs, TargetPackBytes: 12_000, Workers: 1,
		Now:  func() time.Time { now = now.Add(time.Second); return now },
		Rand: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}),
	}.Inline(2).SkipSync(os.Getenv(sabotageVariable) == "skip-sync")
}

// oracle knows what a store must and may hold.
type oracle struct {
	chunks []cas.Chunk
	refs   map[cas.Hash]cas.Ref
	put    map[cas.Hash][]byte // Put returned without an error
	synced map[cas.Hash][]byte // and then Sync
	tried  map[cas.Hash][]byte
}

func newOracle() *oracle {
	return &oracle{refs: map[cas.Hash]cas.Ref{}, put: map[cas.Hash][]byte{}, synced: map[cas.Hash][]byte{}, tried: map[cas.Hash][]byte{}}
}

func (o *oracle) putSome(t *testing.T, s *local.Store, chunks []cas.Chunk) error {
	for _, c := range chunks {
		o.tried[c.Hash] = c.Data
	}
	hints := make([]cas.Hint, len(chunks))
	if _, err := s.Put(t.Context(), chunks, hints); err != nil {
		return err
	}
	for i, c := range chunks {
		o.put[c.Hash] = c.Data
		o.refs[c.Hash] = cas.Ref{Hash: c.Hash, Hint: hints[i]}
	}
	return nil
}

func (o *oracle) sync(t *testing.T, s *local.Store) error {
	if err := s.Sync(t.Context()); err != nil {
		return err
	}
	for h, data := range o.put {
		o.synced[h] = data
	}
	return nil
}

// check reads everything, with hints and without.
func (o *oracle) check(t *testing.T, s *local.Store, how string) {
	t.Helper()
	for h, data := range o.tried {
		_, must := o.synced[h]
		for _, ref := range []cas.Ref{{Hash: h}, o.refs[h]} {
			ref.Hash = h
			got, err := s.Get(t.Context(), ref, nil)
			switch {
			case err == nil && !bytes.Equal(got, data):
				t.Fatalf("%s: chunk %s: wrong bytes were served", how, h)
			case err != nil && must:
				t.Fatalf("%s: chunk %s was synced and is lost: %v", how, h, err)
			case err != nil && !errors.Is(err, cas.ErrNotFound):
				t.Fatalf("%s: chunk %s was not synced, and reading it says %v", how, h, err)
			}
		}
	}
}

// history is what the tests cut: puts, syncs, seals, a clean close.
func history(t *testing.T, fs local.FS, o *oracle, seed uint64) error {
	c := crashConfig(fs, seed)
	chunks := castest.Chunks(cas.NewHasher(nil), seed, 60)
	for session := range 2 {
		s, err := local.Open(t.Context(), c)
		if err != nil {
			return err
		}
		for i := range 6 {
			first := session*30 + i*5
			if err := o.putSome(t, s, chunks[max(first-3, 0):first+5]); err != nil { // three of them known
				s.Close()
				return err
			}
			if i%2 == 1 {
				if err := o.sync(t, s); err != nil {
					s.Close()
					return err
				}
			}
			if i == 4 {
				if err := s.Seal(t.Context()); err != nil {
					s.Close()
					return err
				}
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
		for h, data := range o.put { // Close syncs
			o.synced[h] = data
		}
	}
	return nil
}

// recoverAndGoOn opens what the crash left, checks it, uses it, crashes it and checks again.
func recoverAndGoOn(t *testing.T, fs *castest.CrashFS, o *oracle, seed uint64, how string) {
	t.Helper()
	s, err := local.Open(t.Context(), crashConfig(fs, seed+1000))
	if err != nil {
		t.Fatalf("%s: the store doesn't open: %v", how, err)
	}
	o.check(t, s, how)
	if n := s.Stats().DamagedPacks; n > 0 {
		t.Fatalf("%s: %d sealed packs are damaged", how, n)
	}
	o.put = maps.Clone(o.synced)
	// What is there of unsynced chunks is referred to now: the next Sync must make it durable.
	again := castest.Chunks(cas.NewHasher(nil), seed, 60)[:25]
	if err := o.putSome(t, s, again); err != nil {
		t.Fatalf("%s: put after the crash: %v", how, err)
	}
	if err := o.sync(t, s); err != nil {
		t.Fatalf("%s: sync after the crash: %v", how, err)
	}
	o.check(t, s, how+", going on")
	after := fs.AfterCrash()
	s.Close()
	s, err = local.Open(t.Context(), crashConfig(after, seed+2000))
	if err != nil {
		t.Fatalf("%s: the store doesn't open after the second crash: %v", how, err)
	}
	defer s.Close()
	o.check(t, s, how+", second crash")
}

func eachSeed(t *testing.T, run func(t *testing.T, seed uint64)) {
	for seed := *seedFlag; seed < *seedFlag+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("again: go test ./cas/local -run '%s' -seed %d -seeds 1", t.Name(), seed)
				}
			})
			run(t, seed)
		})
	}
}

func TestPowerCutAtAnyOperationLosesNothingSynced(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		for n := 1; ; n++ {
			fs, o := castest.NewCrashFS(seed*10_000+uint64(n)), newOracle()
			fs.CutAt(n)
			err := history(t, fs, o, seed)
			if !fs.HasCut() {
				if err != nil {
					t.Fatalf("without a cut: %v", err)
				}
				t.Logf("%d operations", n-1)
				return
			}
			recoverAndGoOn(t, fs.AfterCrash(), o, seed, fmt.Sprintf("cut at operation %d", n))
		}
	})
}

func TestPowerCutDuringRecoveryLosesNothingSynced(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		for n := 5; n < 200; n += 17 {
			fs, o := castest.NewCrashFS(seed*10_000+uint64(n)), newOracle()
			fs.CutAt(n)
			history(t, fs, o, seed)
			left := fs.AfterCrash()
			for m := 1; ; m++ {
				left.CutAt(m)
				s, err := local.Open(t.Context(), crashConfig(left, seed+3000))
				cut := left.HasCut()
				if err == nil {
					s.Close()
				} else if !cut {
					t.Fatalf("cut at operation %d and %d more times: %v", n, m-1, err)
				}
				if left = left.AfterCrash(); !cut {
					break
				}
			}
			recoverAndGoOn(t, left, o, seed, fmt.Sprintf("cut at operation %d, and in recovery", n))
		}
	})
}

// A failed operation is not the end: the error is told, and what was synced before and after it is there.
func TestAnyFailedOperationLosesNothingSynced(t *testing.T) {
	boom := errors.New("input/output error")
	eachSeed(t, func(t *testing.T, seed uint64) {
		for n := 1; n < 150; n++ {
			fs, o := castest.NewCrashFS(seed*20_000+uint64(n)), newOracle()
			fs.FailAt(n, "", boom)
			err := history(t, fs, o, seed)
			if err != nil && !errors.Is(err, boom) {
				t.Fatalf("operation %d failed: %v", n, err)
			}
			recoverAndGoOn(t, fs.AfterCrash(), o, seed, fmt.Sprintf("operation %d failed", n))
		}
	})
}

// fsync that failed once and then "succeeds" has lost the bytes between. Sync says ok only when it has written them anew.
func TestSyncAfterAFailedSyncTellsTheTruth(t *testing.T) {
	fs, o := castest.NewCrashFS(1), newOracle()
	s, err := local.Open(t.Context(), crashConfig(fs, 1))
	if err != nil {
		t.Fatal(err)
	}
	chunks := castest.Chunks(s.Hasher(), 9, 8)
	if err := o.putSome(t, s, chunks[:2]); err != nil {
		t.Fatal(err)
	}
	if err := o.sync(t, s); err != nil {
		t.Fatal(err)
	}
	if err := o.putSome(t, s, chunks[2:4]); err != nil {
		t.Fatal(err)
	}
	fs.FailAt(1, "sync", errors.New("input/output error"))
	if err := o.sync(t, s); err != nil {
		t.Fatalf("the pack could be copied, and yet: %v", err)
	}
	if s.Stats().Rescues != 1 {
		t.Errorf("%d rescues, want 1", s.Stats().Rescues)
	}
	if err := o.putSome(t, s, chunks[4:6]); err != nil {
		t.Fatal(err)
	}
	if err := o.sync(t, s); err != nil {
		t.Fatal(err)
	}
	recoverAndGoOn(t, fs.AfterCrash(), o, 1, "after a failed sync")
	s.Close()
}
