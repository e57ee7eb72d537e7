package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

// packed is a store over real packs.
func packed(t testing.TB, dir string, fs local.FS) (*Store, *local.Store) {
	t.Helper()
	chunks, err := local.Open(context.Background(), local.Config{Dir: filepath.Join(dir, "chunks"), TargetPackBytes: 300_000, FS: fs, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { chunks.Close() })
	return reopen(t, filepath.Join(dir, "meta"), chunks), chunks
}

func gc(t testing.TB, s *Store, o GCOptions) GCReport {
	t.Helper()
	r, err := s.GC(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// filler is changed slots of many different pages.
func filler(seed uint64, slots int) delta {
	d := delta{}
	for i := range slots {
		d[uint64(i)] = page(seed*1000 + uint64(i))
	}
	return d
}

func TestDeletingAllGivesTheSpaceBack(t *testing.T) {
	ctx := context.Background()
	s, chunks := packed(t, t.TempDir(), nil)
	putBundle(t, s, "b", page(1))
	for v := range 3 {
		id := fmt.Sprintf("vm-%d", v)
		newVM(t, s, id)
		for k := range 5 {
			checkpoint(t, s, id, memBytes, filler(uint64(10*v+k), 100))
		}
	}
	before := chunks.Stats().PackBytes
	if before < 5<<20 {
		t.Fatalf("only %d bytes were put", before)
	}
	if r := gc(t, s, GCOptions{Apply: true}); r.Sweep.DeadBytes > r.Sweep.LiveBytes/1000 || r.Snapshots != 16 {
		t.Errorf("nothing but notes is dead: %+v", r)
	}
	for v := range 3 {
		if err := s.DeleteVM(ctx, fmt.Sprintf("vm-%d", v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteBundle(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	held := chunks.Stats().PackBytes
	dry := gc(t, s, GCOptions{})
	if dry.Applied || dry.Freed < held*98/100 || chunks.Stats().PackBytes < held {
		t.Errorf("a dry run of %d bytes: %+v", held, dry)
	}
	r := gc(t, s, GCOptions{Apply: true})
	if after := chunks.Stats().PackBytes; after > before*2/100 || r.Freed < before*90/100 {
		t.Errorf("%d of %d bytes are left: %+v", after, before, r)
	}
	if bytes, known := s.Garbage(); bytes != 0 || !known {
		t.Errorf("garbage %d, %v", bytes, known)
	}
}

func TestDryRunTellsWhatApplyThenDoes(t *testing.T) {
	s, _ := packed(t, t.TempDir(), nil)
	newVM(t, s, "vm")
	for k := range 12 {
		checkpoint(t, s, "vm", memBytes, filler(uint64(k), 100))
	}
	keep := &Retention{KeepLast: 3}
	dry := gc(t, s, GCOptions{Retention: keep})
	if h, _ := s.History(context.Background(), "vm"); len(dry.Removed) != 9 || len(h) != 12 {
		t.Fatalf("dry: %d, left %d", len(dry.Removed), len(h))
	}
	r := gc(t, s, GCOptions{Retention: keep, Apply: true})
	near := func(a, b int64) bool { return a-b < b/100 && b-a < b/100 } // to apply is to write a catalogue, too
	if len(r.Removed) != 9 || !near(r.Sweep.DeadBytes, dry.Sweep.DeadBytes) || !near(r.Sweep.LiveBytes, dry.Sweep.LiveBytes) {
		t.Errorf("dry %+v\napplied %+v", dry, r)
	}
	if diff := r.Freed - dry.Freed; diff < -dry.Freed/50 || diff > dry.Freed/50 {
		t.Errorf("dry run says %d, %d were freed", dry.Freed, r.Freed)
	}
}

// What a machine reads from stays, also when its checkpoint is removed.
func TestHeldSnapshotStaysReadableUntilItIsReleased(t *testing.T) {
	ctx := context.Background()
	s, chunks := packed(t, t.TempDir(), nil)
	newVM(t, s, "vm")
	first := checkpoint(t, s, "vm", memBytes, filler(1, 100))
	release := s.Hold(first.Snapshot)
	im := image(t, s, first.Snapshot, "mem")
	checkpoint(t, s, "vm", memBytes, filler(2, 100))
	if err := s.RemoveCheckpoints(ctx, "vm", []int{1}, "test"); err != nil {
		t.Fatal(err)
	}
	gc(t, s, GCOptions{Apply: true})
	forget(s)
	mustHold(t, im, filler(1, 100))
	held := chunks.Stats().PackBytes
	release()
	gc(t, s, GCOptions{Apply: true})
	forget(s)
	if err := im.ReadSlot(ctx, 5, make([]byte, cas.SlotBytes)); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("released: %v", err)
	}
	if now := chunks.Stats().PackBytes; now > held*60/100 {
		t.Errorf("%d of %d bytes are left", now, held)
	}
}

// Collections beside commits, forks, reads and removals: whatever is named is whole at every moment.
func TestGCBesideCheckpointsForksAndReadsTakesNothing(t *testing.T) {
	ctx := context.Background()
	s, _ := packed(t, t.TempDir(), nil)
	for v := range 2 {
		newVM(t, s, fmt.Sprintf("vm-%d", v))
	}
	stop := make(chan struct{})
	failed := make(chan error, 3)
	var workers sync.WaitGroup
	work := func(f func(round uint64) error) {
		workers.Go(func() {
			for round := uint64(0); ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(round); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for v := range 2 {
		id := fmt.Sprintf("vm-%d", v)
		work(func(round uint64) error {
			// The same pages come again after they were garbage.
			want := delta{}
			for i := range uint64(60) {
				want[i] = page((round*uint64(v+1)%5)*100 + i)
			}
			c, err := tryCheckpoint(s, id, memBytes, want)
			if err != nil {
				return err
			}
			im := image(t, s, c.Snapshot, "mem")
			got := make([]byte, cas.SlotBytes)
			for slot, p := range want {
				if err := im.ReadSlot(ctx, slot, got); err != nil || string(got) != string(p) {
					return fmt.Errorf("%s@%d slot %d: %w", id, c.Number, slot, err)
				}
			}
			return nil
		})
	}
	work(func(round uint64) error {
		id := fmt.Sprintf("fork-%d", round%3)
		v, err := s.VM(ctx, "vm-0")
		if err != nil || v.Head < 0 {
			return err
		}
		if err := s.DeleteVM(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		err = s.CreateVM(ctx, VM{ID: id}, &ForkPoint{"vm-0", v.Head})
		if errors.Is(err, ErrNotFound) { // thinned since
			return nil
		}
		return err
	})
	keep := &Retention{KeepLast: 2}
	end := time.Now().Add(800 * time.Millisecond)
	rounds := 0
	for ; rounds < 3 || time.Now().Before(end); rounds++ {
		gc(t, s, GCOptions{Apply: true, Retention: keep})
	}
	close(stop)
	workers.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	forget(s)
	r, err := s.Check(ctx, CheckOptions{Read: 1})
	if err != nil || len(r.Findings) > 0 {
		t.Errorf("after %d collections: %v, %+v", rounds, err, r.Findings)
	}
	t.Logf("%d collections", rounds)
}

// The power is cut at every operation of a collection in turn: what is named is whole, whatever was removed.
func TestPowerCutDuringGCLosesNothing(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	step := 1
	for n := 1; ; n += step {
		fs := castest.NewCrashFS(uint64(n))
		dir := filepath.Join(base, fmt.Sprint(n))
		s, chunks := packed(t, dir, fs)
		newVM(t, s, "vm")
		want := map[int]delta{}
		all := delta{}
		for k := range 6 {
			change := filler(uint64(k), 40)
			maps.Copy(all, change)
			c := checkpoint(t, s, "vm", memBytes, change)
			want[c.Number] = maps.Clone(all)
		}
		fs.CutAt(n)
		_, err := s.GC(ctx, GCOptions{Apply: true, Retention: &Retention{KeepLast: 2}})
		cut := fs.HasCut()
		if err != nil && !cut {
			t.Fatal(err)
		}
		after := fs.AfterCrash()
		s.Close()
		chunks.Close()
		s, chunks = packed(t, dir, after)
		h, err := s.History(ctx, "vm")
		if err != nil || len(h) < 2 {
			t.Fatalf("cut at %d: %d checkpoints, %v", n, len(h), err)
		}
		for _, c := range h {
			mustHold(t, image(t, s, c.Snapshot, "mem"), want[c.Number])
		}
		gc(t, s, GCOptions{Apply: true})
		if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || len(r.Findings) > 0 {
			t.Fatalf("cut at %d: %v, %+v", n, err, r.Findings)
		}
		s.Close()
		chunks.Close()
		os.RemoveAll(dir)
		if !cut {
			return
		}
		step = 1 + n/8
	}
}

// meddled is a chunk store on which something happens between the marking and the sweep.
type meddled struct {
	*local.Store
	meddle func()
}

type meddledSweep struct {
	cas.Sweep
	meddle func()
}

func (m *meddled) BeginSweep(ctx context.Context) (cas.Sweep, error) {
	sweep, err := m.Store.BeginSweep(ctx)
	return meddledSweep{sweep, m.meddle}, err
}

func (m meddledSweep) Run(ctx context.Context, live func(cas.Hash) bool, b cas.SweepBudget) (cas.SweepStats, error) {
	m.meddle()
	return m.Sweep.Run(ctx, live, b)
}

// A checkpoint that begins and ends after the marking refers to chunks that were garbage by then.
func TestCheckpointBetweenMarkAndSweepLosesNothing(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	packs, err := local.Open(ctx, local.Config{Dir: filepath.Join(dir, "chunks"), TargetPackBytes: 300_000, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer packs.Close()
	m := &meddled{Store: packs}
	s := reopen(t, filepath.Join(dir, "meta"), m)
	newVM(t, s, "vm")
	checkpoint(t, s, "vm", memBytes, filler(1, 100))
	checkpoint(t, s, "vm", memBytes, filler(2, 100))
	if err := s.RemoveCheckpoints(ctx, "vm", []int{1}, "test"); err != nil {
		t.Fatal(err)
	}
	var again *Checkpoint
	m.meddle = func() { again = checkpoint(t, s, "vm", memBytes, filler(1, 100)) }
	if r := gc(t, s, GCOptions{Apply: true}); r.Sweep.Packs == 0 {
		t.Fatalf("%+v", r)
	}
	forget(s)
	mustHold(t, image(t, s, again.Snapshot, "mem"), filler(1, 100))
	if again.NewBytes > 20_000 {
		t.Errorf("the garbage was stored again: %d bytes", again.NewBytes)
	}
}

// Between reading a bundle and making a VM from it the bundle may be removed, and its chunks with it.
func TestVMIsNotMadeFromABundleThatIsGone(t *testing.T) {
	ctx := context.Background()
	s, _ := packed(t, t.TempDir(), nil)
	bundle := putBundle(t, s, "b", page(1))
	if err := s.CreateVM(ctx, VM{ID: "first", Bundle: bundle}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteBundle(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateVM(ctx, VM{ID: "second", Bundle: bundle}, nil); err != nil {
		t.Errorf("another VM boots from it: %v", err)
	}
	if err := errors.Join(s.DeleteVM(ctx, "first"), s.DeleteVM(ctx, "second")); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateVM(ctx, VM{ID: "third", Bundle: bundle}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing names it: %v", err)
	}
}
