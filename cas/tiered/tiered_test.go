package tiered_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/castest"
	"flash/cas/local"
	"flash/cas/remote"
	"flash/cas/tiered"
)

var (
	_ tiered.Near = (*local.Store)(nil)
	_ tiered.Far  = (*remote.Remote)(nil)
)

// far is a memory store as a far tier.
type far struct{ *castest.Memory }

func (f far) Has(hs []cas.Hash) []bool {
	present, err := f.Memory.Has(context.Background(), hs)
	if err != nil {
		return make([]bool, len(hs))
	}
	return present
}

func newFar(t testing.TB, chunks []cas.Chunk) far {
	t.Helper()
	f := far{castest.NewMemory()}
	if _, err := f.Put(t.Context(), chunks, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func newNear(t testing.TB, dir string) *local.Store {
	t.Helper()
	near, err := local.Open(t.Context(), local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near
}

func newStore(t testing.TB) *tiered.Store {
	t.Helper()
	return tiered.New(newNear(t, t.TempDir()))
}

func refsTo(chunks []cas.Chunk) []cas.Ref {
	refs := make([]cas.Ref, len(chunks))
	for i := range chunks {
		refs[i].Hash = chunks[i].Hash
	}
	return refs
}

func TestTieredConforms(t *testing.T) {
	t.Run("near alone", func(t *testing.T) {
		castest.Run(t, func(t *testing.T) cas.Store { return newStore(t) })
	})
	t.Run("with fars that have other chunks", func(t *testing.T) {
		castest.Run(t, func(t *testing.T) cas.Store {
			s := newStore(t)
			s.SetFar("a", newFar(t, castest.Chunks(s.Hasher(), 1000, 20)))
			s.SetFar("b", newFar(t, nil))
			return s
		})
	})
}

func TestWhatIsFarIsRead(t *testing.T) {
	s := newStore(t)
	chunks := castest.Chunks(s.Hasher(), 1, 90)
	if _, err := s.Put(t.Context(), chunks[:30], nil); err != nil {
		t.Fatal(err)
	}
	s.SetFar("a", newFar(t, chunks[20:60]))
	s.SetFar("b", newFar(t, chunks[50:80]))
	for i, c := range chunks {
		got, err := s.Get(t.Context(), cas.Ref{Hash: c.Hash}, []byte("x"))
		if i < 80 && (err != nil || !bytes.Equal(got[1:], c.Data)) || i >= 80 && !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("chunk %d: %d bytes, %v", i, len(got), err)
		}
	}
	calls := make([]int, len(chunks))
	err := s.GetMany(t.Context(), refsTo(chunks), func(i int, data []byte, err error) error {
		calls[i]++
		if i < 80 && (err != nil || !bytes.Equal(data, chunks[i].Data)) || i >= 80 && !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("chunk %d of many: %d bytes, %v", i, len(data), err)
		}
		return nil
	})
	if err != nil || slices.Max(calls) != 1 || slices.Min(calls) != 1 {
		t.Errorf("calls %v: %v", calls, err)
	}
	if st := s.Stats(); st.FarChunks != 100 || st.FarBytes == 0 || st.DamagedNear != 0 {
		t.Errorf("%+v", st)
	}
	hs := []cas.Hash{chunks[0].Hash, chunks[40].Hash, chunks[79].Hash, chunks[85].Hash}
	if got, err := s.Has(t.Context(), hs); err != nil || !slices.Equal(got, []bool{true, true, true, false}) {
		t.Errorf("Has: %v, %v", got, err)
	}
	s.RemoveFar("a")
	if _, err := s.Get(t.Context(), cas.Ref{Hash: chunks[40].Hash}, nil); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("of a far that was removed: %v", err)
	}
	if _, err := s.Get(t.Context(), cas.Ref{Hash: chunks[55].Hash}, nil); err != nil {
		t.Error(err)
	}
}

func TestChunkThatIsOnlyFarIsStoredWhenItIsPut(t *testing.T) {
	s := newStore(t)
	chunks := castest.Chunks(s.Hasher(), 1, 10)
	s.SetFar("a", newFar(t, chunks))
	st, err := s.Put(t.Context(), chunks, nil)
	if err != nil || st.NewChunks != 10 {
		t.Fatalf("%+v, %v", st, err)
	}
	s.RemoveFar("a")
	for _, c := range chunks {
		if _, err := s.Get(t.Context(), cas.Ref{Hash: c.Hash}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A pager asks again unless an error says that it is permanent: the wrong answer costs a guest its life, or hangs it.
func TestChunkIsLostOnlyWhenEveryTierSaysSo(t *testing.T) {
	s := newStore(t)
	chunks := castest.Chunks(s.Hasher(), 1, 2)
	a, b := newFar(t, nil), newFar(t, chunks[1:])
	s.SetFar("a", a)
	s.SetFar("b", b)
	outage := fmt.Errorf("reset: %w", bucket.ErrUnavailable)
	for name, get := range map[string]func(ref cas.Ref) error{
		"Get": func(ref cas.Ref) error { _, err := s.Get(t.Context(), ref, nil); return err },
		"GetMany": func(ref cas.Ref) (failed error) {
			err := s.GetMany(t.Context(), []cas.Ref{ref}, func(_ int, _ []byte, err error) error { failed = err; return nil })
			return errors.Join(err, failed)
		},
	} {
		lost, there := cas.Ref{Hash: chunks[0].Hash}, cas.Ref{Hash: chunks[1].Hash}
		if err := get(lost); !errors.Is(err, cas.ErrNotFound) || !isPermanent(err) {
			t.Errorf("%s: nobody has it: %v", name, err)
		}
		a.FailAt(1, outage)
		if err := get(lost); !errors.Is(err, bucket.ErrUnavailable) || isPermanent(err) {
			t.Errorf("%s: one is silent: %v", name, err)
		}
		a.FailAt(1, outage)
		if err := get(there); err != nil {
			t.Errorf("%s: one is silent, and the other has it: %v", name, err)
		}
		b.FailAt(1, outage)
		if err := get(there); !errors.Is(err, bucket.ErrUnavailable) || isPermanent(err) {
			t.Errorf("%s: who has it is silent: %v", name, err)
		}
		if err := get(there); err != nil {
			t.Errorf("%s: the outage is over: %v", name, err)
		}
	}
	b.Corrupt(chunks[1].Hash)
	if _, err := s.Get(t.Context(), cas.Ref{Hash: chunks[1].Hash}, nil); !errors.Is(err, cas.ErrCorrupt) || !isPermanent(err) {
		t.Errorf("damaged far: %v", err)
	}
}

func isPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

func TestChunkDamagedNearIsServedByAFarThatHasIt(t *testing.T) {
	dir := t.TempDir()
	s := tiered.New(newNear(t, dir))
	var mu sync.Mutex
	var events []tiered.Event
	s.OnEvent(func(e tiered.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	chunks := castest.Chunks(s.Hasher(), 1, 10)
	hints := make([]cas.Hint, 10)
	if _, err := s.Put(t.Context(), chunks, hints); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "packs", s.PackNames()[0])
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p[hints[3].Offset+60] ^= 4
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	ref := cas.Ref{Hash: chunks[3].Hash, Hint: hints[3]}
	if _, err := s.Get(t.Context(), ref, nil); !errors.Is(err, cas.ErrCorrupt) {
		t.Fatalf("without a far: %v", err)
	}
	s.SetFar("b", newFar(t, nil))
	if _, err := s.Get(t.Context(), ref, nil); !errors.Is(err, cas.ErrCorrupt) {
		t.Fatalf("with a far that hasn't it: %v", err)
	}
	s.SetFar("b", newFar(t, chunks[3:4]))
	if got, err := s.Get(t.Context(), ref, nil); err != nil || !bytes.Equal(got, chunks[3].Data) {
		t.Fatalf("with one that has: %v", err)
	}
	err = s.GetMany(t.Context(), []cas.Ref{ref}, func(_ int, data []byte, err error) error {
		if !bytes.Equal(data, chunks[3].Data) {
			t.Errorf("of many: %v", err)
		}
		return nil
	})
	if err != nil || len(events) != 2 || events[0].Far != "b" || events[0].Chunk != chunks[3].Hash || !errors.Is(events[0].Near, cas.ErrCorrupt) {
		t.Errorf("events %+v, %v", events, err)
	}
	if st := s.Stats(); st.DamagedNear != 2 {
		t.Errorf("%+v", st)
	}
}

func TestFarsComeAndGoBesideReads(t *testing.T) {
	s := newStore(t)
	chunks := castest.Chunks(s.Hasher(), 1, 20)
	s.SetFar("stays", newFar(t, chunks))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				err := s.GetMany(t.Context(), refsTo(chunks), func(_ int, _ []byte, err error) error { return err })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 200 {
		name := fmt.Sprint(i % 3)
		s.SetFar(name, newFar(t, nil))
		s.RemoveFar(fmt.Sprint((i + 1) % 3))
	}
	wg.Wait()
}

func BenchmarkGetNearAlone(b *testing.B) {
	for _, over := range []bool{false, true} {
		b.Run(map[bool]string{false: "local", true: "tiered"}[over], func(b *testing.B) {
			near := newNear(b, b.TempDir())
			var s cas.Store = near
			if over {
				s = tiered.New(near)
			}
			chunks := castest.Chunks(s.Hasher(), 1, 100)
			hints := make([]cas.Hint, 100)
			if _, err := s.Put(b.Context(), chunks, hints); err != nil {
				b.Fatal(err)
			}
			var buf []byte
			i := 0
			for b.Loop() {
				var err error
				if buf, err = s.Get(b.Context(), cas.Ref{Hash: chunks[i%100].Hash, Hint: hints[i%100]}, buf[:0]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
