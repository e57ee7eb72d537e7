package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
	"flash/store"
)

// newPackedWorld is a world over real packs.
func newPackedWorld(t *testing.T) (*world, *local.Store) {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), chunks: castest.NewMemory(), faults: &faults{}}
	packs, err := local.Open(t.Context(), local.Config{Dir: w.dir, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packs.Close() })
	return newWorldOver(t, w, packs), packs
}

func (w *world) gc(r GCRequest) GCReport {
	w.t.Helper()
	report, err := w.GC(w.t.Context(), r)
	w.must(err)
	return report
}

// What a running guest reads from stays, though its checkpoint is thinned away, and goes once the guest has ended.
func TestWhatALiveGuestReadsFromOutlivesItsCheckpoint(t *testing.T) {
	w, packs := newPackedWorld(t)
	w.run("a")
	w.write("a", "one")
	first := w.checkpointNow("a", "one")
	w.write("a", "two")
	w.checkpointNow("a", "two")
	entry, err := w.meta.Checkpoint(t.Context(), "a", first.Number)
	w.must(err)
	isThere := func() bool {
		t.Helper()
		present, err := packs.Has(t.Context(), []cas.Hash{entry.Snapshot})
		w.must(err)
		return present[0]
	}
	w.rewindTo("a", first.Number)
	w.checkpointNow("a", "three") // the head moves on; memory still comes from the first
	keep := &store.Retention{KeepLast: 1}
	if r := w.gc(GCRequest{Apply: true, Retention: keep}); len(r.Removed) != 3 || !isThere() {
		t.Fatalf("%d removed, the snapshot is there: %v", len(r.Removed), isThere())
	}
	w.holds("a", "one")
	w.pastIs("a", "4<- three*")
	w.stop("a")
	w.gc(GCRequest{Apply: true, Retention: keep})
	if isThere() {
		t.Error("nobody reads from it any more, and it is there")
	}
	w.start("a")
	w.holds("a", "one")
	w.sound("a")
}

func TestRemovedVMsGiveTheirSpaceBack(t *testing.T) {
	w, packs := newPackedWorld(t)
	w.run("a", eachCommand)
	for _, text := range []string{"one", "two", "three"} {
		w.write("a", text)
	}
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a", Force: true}))
	w.must(w.RemoveBundle(t.Context(), "tiny"))
	if files, err := os.ReadDir(filepath.Join(w.dir, "boot")); err != nil || len(files) == 0 {
		t.Fatalf("boot files: %v, %v", files, err)
	}
	if r := w.gc(GCRequest{}); r.Applied || r.Freed == 0 {
		t.Errorf("dry: %+v", r)
	}
	w.gc(GCRequest{Apply: true})
	if st := packs.Stats(); st.Packs != 0 {
		t.Errorf("%d packs of %d bytes are left", st.Packs, st.PackBytes)
	}
	if files, err := os.ReadDir(filepath.Join(w.dir, "boot")); err != nil || len(files) != 0 {
		t.Errorf("boot files are left: %v, %v", files, err)
	}
}

func TestBackgroundGCRunsWhenItIsTimeAndWorthIt(t *testing.T) {
	w, _ := newPackedWorld(t)
	w.run("a", eachCommand)
	for range 3 {
		w.write("a", "x")
	}
	long := time.Now().Add(-24 * time.Hour)
	ran := func(last time.Time) bool {
		t.Helper()
		ran, err := w.upkeep(t.Context(), last)
		w.must(err)
		return ran
	}
	if ran(time.Now()) {
		t.Error("it ran though it just had")
	}
	if !ran(long) {
		t.Error("nobody knew how much garbage there is, and it didn't run")
	}
	if ran(long) {
		t.Error("it ran for nothing")
	}
	w.gc(GCRequest{Retention: &store.Retention{KeepLast: 2}, Save: true})
	off, on := false, true
	w.gc(GCRequest{Background: &off})
	if ran(long) {
		t.Error("it ran though it is off")
	}
	w.gc(GCRequest{Background: &on, EveryMinutes: 60})
	if ran(time.Now().Add(-45 * time.Minute)) {
		t.Error("it ran more often than asked")
	}
	if !ran(long) {
		t.Error("the rules want checkpoints gone, and it didn't run")
	}
	if all, err := w.History(t.Context(), "a"); err != nil || len(all) != 2 {
		t.Errorf("%d checkpoints, %v", len(all), err)
	}
}

func TestOneCheckpointCanBeRemoved(t *testing.T) {
	w, _ := newPackedWorld(t)
	w.run("a", eachCommand)
	for range 3 {
		w.write("a", "x")
	}
	w.fails(w.RemoveCheckpoint(t.Context(), "a", 3), CodeVMPinned)
	w.fails(w.RemoveCheckpoint(t.Context(), "a", 9), CodeCheckpointNotFound)
	w.fails(w.RemoveCheckpoint(t.Context(), "b", 1), CodeVMNotFound)
	w.must(w.RemoveCheckpoint(t.Context(), "a", 2))
	w.sound("a")
}

// A flipped byte anywhere in a checkpoint's packs: it is found, and no machine runs with it.
func TestDamagedCheckpointIsNamedAndNeverServed(t *testing.T) {
	w, packs := newPackedWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.stop("a")
	w.must(packs.Seal(t.Context()))
	entry, err := w.meta.Checkpoint(t.Context(), "a", 1)
	w.must(err)
	for _, name := range packs.PackNames() {
		d, err := packs.DumpPack(t.Context(), name)
		w.must(err)
		for _, r := range d.Records {
			if r.Hash != entry.Snapshot {
				continue
			}
			f, err := os.OpenFile(filepath.Join(w.dir, "packs", name), os.O_RDWR, 0)
			w.must(err)
			p := make([]byte, 1)
			f.ReadAt(p, r.Offset+60)
			p[0] ^= 1
			_, err = f.WriteAt(p, r.Offset+60)
			w.must(err)
			f.Close()
		}
	}
	report, err := w.Check(t.Context(), CheckRequest{Read: 1})
	w.must(err)
	named := false
	for _, f := range report.Findings {
		for _, n := range f.Touches {
			named = named || n == store.Name{VM: "a", Number: 1} && f.Hash == entry.Snapshot && f.Pack != ""
		}
	}
	if !named || report.Worst != store.Damage {
		t.Errorf("%+v", report.Findings)
	}
	_, err = w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
	w.fails(err, CodeCorrupt)
	_, err = w.GC(t.Context(), GCRequest{Apply: true})
	w.fails(err, CodeCorrupt)
	w.must(w.RemoveCheckpoint(t.Context(), "a", 1))
	w.gc(GCRequest{Apply: true})
	w.start("a")
	w.holds("a", "one")
}
