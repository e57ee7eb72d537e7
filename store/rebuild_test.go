package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/local"
)

// lost is a store whose database was removed, and a config to rebuild it with.
type lost struct {
	t      *testing.T
	dir    string
	chunks *castest.Memory
}

func (l *lost) config() Config {
	return Config{Dir: filepath.Join(l.dir, "meta"), Chunks: l.chunks, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
}

func (l *lost) lose() {
	l.t.Helper()
	if err := os.RemoveAll(l.config().Dir); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lost) rebuild() (*Store, RebuildReport) {
	l.t.Helper()
	r, err := Rebuild(context.Background(), l.config())
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := Open(context.Background(), l.config())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.Close() })
	if c, err := s.Check(context.Background(), CheckOptions{}); err != nil || len(c.Findings) > 0 {
		l.t.Fatalf("%v, %+v", err, c.Findings)
	}
	return s, r
}

// withoutLedger is what must come back of a VM.
func withoutLedger(t testing.TB, s *Store, vm string) History {
	t.Helper()
	h := travelled(t, s, vm)
	h.Ledger = nil
	return h
}

// After an end in order all comes back, to the last pin, but for the ledger's own word about it.
func TestALostDatabaseComesBackWhole(t *testing.T) {
	ctx := t.Context()
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	bundle := putBundle(t, s, "debian", page(500))
	busyVM(t, s)
	if err := s.CreateVM(ctx, VM{ID: "booted", Bundle: bundle, Spec: []byte(`{"a":1}`)}, nil); err != nil {
		t.Fatal(err)
	}
	newVM(t, s, "gone")
	checkpoint(t, s, "gone", memBytes, delta{1: page(900)})
	if err := s.DeleteVM(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	was := map[string]History{}
	for _, vm := range []string{"a", "booted", "child"} {
		was[vm] = travelled(t, s, vm)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l.lose()
	s, r := l.rebuild()
	if len(r.VMs) != 3 || !slices.Equal(r.Bundles, []string{"debian"}) || len(r.Problems) > 0 || r.SetAside != "" {
		t.Fatalf("%+v", r)
	}
	for vm, want := range was {
		got := travelled(t, s, vm)
		if last := got.Ledger[len(got.Ledger)-1]; last.Kind != "rebuilt" {
			t.Errorf("the ledger of %s ends with %s", vm, last.Kind)
		}
		got.Ledger = got.Ledger[:len(got.Ledger)-1]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is\n%+v\nit was\n%+v", vm, got, want)
		}
	}
	if r.Unnamed != 1 {
		t.Errorf("%d snapshots without a name", r.Unnamed) // gone's
	}
	mustHold(t, image(t, s, SnapshotID(was["a"].Checkpoints[0].Snapshot), "mem"), delta{0: page(0)})
	if set, _ := s.Settings(ctx); !set.GCOff {
		t.Error("the background collects")
	}
	if c := checkpoint(t, s, "a", memBytes, delta{9: page(9)}); c.Number != 6 {
		t.Errorf("it goes on with %d", c.Number)
	}
}

// Without an end in order the notes tell what was committed since the last catalogue, and again after another loss.
func TestWhatWasCommittedComesBackAfterAKill(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	busyVM(t, s)
	for round := range 3 {
		v, err := s.VM(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			checkpoint(t, s, "a", memBytes, delta{uint64(i): page(uint64(1000*round + i))})
		}
		want := withoutLedger(t, s, "a")
		l.chunks = l.chunks.Crash() // the old store goes on, apart
		l.dir = t.TempDir()
		var r RebuildReport
		s, r = l.rebuild()
		got := withoutLedger(t, s, "a")
		if round == 0 { // set since the VM was made, and in no catalogue yet
			got.Retention, want.Retention = nil, nil
			for i := range want.Checkpoints {
				want.Checkpoints[i].Pinned, want.Checkpoints[i].ExitCode = false, nil
				want.Checkpoints[i].NewBytes, got.Checkpoints[i].NewBytes = 0, 0
			}
		} else {
			for i := range want.Checkpoints {
				want.Checkpoints[i].NewBytes, got.Checkpoints[i].NewBytes = 0, 0
			}
		}
		if !reflect.DeepEqual(got, want) || len(r.Problems) > 0 {
			t.Fatalf("round %d, begun at %d: %+v\nis\n%+v\nit was\n%+v", round, v.Head, r, got, want)
		}
	}
}

// A checkpoint that isn't whole any more stays away; what descends from it hangs on the one before.
func TestWhatIsNotWholeStaysAway(t *testing.T) {
	ctx := t.Context()
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	putBundle(t, s, "debian", page(500))
	newVM(t, s, "a")
	for i := range 4 {
		checkpoint(t, s, "a", memBytes, delta{5: page(uint64(i))})
	}
	h := travelled(t, s, "a")
	s.Close()
	victim := l.chunks.Hasher().Sum(page(1)) // of checkpoint 2 alone
	if !l.chunks.Remove(victim) || !l.chunks.Remove(h.Checkpoints[3].Snapshot) {
		t.Fatal("it isn't there")
	}
	l.lose()
	s, r := l.rebuild()
	if len(r.VMs) != 1 || !slices.Equal(r.VMs[0].Lost, []int{2, 4}) || r.VMs[0].Head != 3 || len(r.Problems) != 2 {
		t.Fatalf("%+v", r)
	}
	if c, err := s.Checkpoint(ctx, "a", 3); err != nil || c.Parent != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if c := checkpoint(t, s, "a", memBytes, delta{6: page(9)}); c.Number != 5 || c.Parent != 3 {
		t.Fatalf("%+v", c)
	}
}

func TestADatabaseThatWorksIsNotRebuilt(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	newVM(t, s, "a")
	s.Close()
	if _, err := Rebuild(t.Context(), l.config()); !errors.Is(err, ErrUsable) {
		t.Fatal(err)
	}
	s = reopen(t, l.config().Dir, l.chunks)
	if _, err := s.VM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := Rebuild(t.Context(), l.config()); !errors.Is(err, ErrLocked) {
		t.Fatalf("in use: %v", err)
	}
}

// A database that was lost is missed: a new one in its place would let the first collection take everything.
func TestALostDatabaseIsNotReplacedByAnEmptyOne(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	newVM(t, s, "a")
	checkpoint(t, s, "a", memBytes, delta{1: page(1)})
	s.Close()
	l.lose()
	for range 2 {
		if _, err := Open(t.Context(), l.config()); !errors.Is(err, ErrDatabase) {
			t.Fatal(err)
		}
	}
	l.rebuild()
}

func TestADamagedDatabaseIsSetAside(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	newVM(t, s, "a")
	checkpoint(t, s, "a", memBytes, delta{1: page(1)})
	s.Close()
	manifestFile := filepath.Join(l.config().Dir, "MANIFEST")
	if err := os.WriteFile(manifestFile, []byte("no manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, r := l.rebuild()
	if p, err := os.ReadFile(filepath.Join(r.SetAside, "MANIFEST")); err != nil || string(p) != "no manifest" {
		t.Fatalf("%+v: %q, %v", r, p, err)
	}
}

// A rebuild that fails anywhere leaves what there was, and works when it is tried again.
func TestARebuildThatFailsCanBeTriedAgain(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	busyVM(t, s)
	s.Close()
	l.lose()
	canceled := 0
	for n := 1; ; n += 7 {
		ctx, cancel := context.WithCancel(t.Context())
		c := l.config()
		c.Chunks = &cancelsAt{l.chunks, &n, cancel}
		left := n
		c.Chunks.(*cancelsAt).left = &left
		_, err := Rebuild(ctx, c)
		cancel()
		if err == nil {
			break
		}
		canceled++
		if _, err := Open(t.Context(), l.config()); !errors.Is(err, ErrDatabase) {
			t.Fatalf("cancelled at %d: %v", n, err)
		}
	}
	if canceled < 3 {
		t.Errorf("only %d cuts", canceled)
	}
	s, err := Open(t.Context(), l.config())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if h, err := s.History(t.Context(), "a"); err != nil || len(h) != 5 {
		t.Fatalf("%d checkpoints, %v", len(h), err)
	}
}

// cancelsAt cancels at the nth read.
type cancelsAt struct {
	*castest.Memory
	left   *int
	cancel func()
}

func (c *cancelsAt) Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error) {
	if *c.left--; *c.left <= 0 {
		c.cancel()
	}
	return c.Memory.Get(ctx, r, dst)
}

// Collections keep the notes that are needed, whatever happens between, and let go of the others.
func TestNotesOutliveCollections(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	chunks := openPacks(t, filepath.Join(dir, "chunks"))
	defer chunks.Close()
	s := reopen(t, filepath.Join(dir, "meta"), chunks)
	busyVM(t, s)
	if err := s.RemoveCheckpoints(ctx, "a", []int{3}, "test"); err != nil {
		t.Fatal(err)
	}
	gc(t, s, GCOptions{Apply: true})
	checkpoint(t, s, "a", memBytes, delta{3: page(33)})
	gc(t, s, GCOptions{}) // dry
	if err := s.DeleteVM(ctx, "child"); err != nil {
		t.Fatal(err)
	}
	want := withoutLedger(t, s, "a")
	if err := s.view(ctx, func(tx *badger.Txn) error {
		if keys := keysWith(tx, []byte(notePrefix), -1); len(keys) != 2 {
			t.Errorf("%d notes since the catalogue", len(keys))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// As after a kill: what Close would write isn't there.
	s.cataloguing.Lock()
	r, err := Rebuild(ctx, Config{Dir: filepath.Join(dir, "again"), Chunks: chunks})
	s.cataloguing.Unlock()
	if err != nil || len(r.VMs) != 1 || r.VMs[0].Checkpoints != 5 || len(r.Problems) > 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	again := reopen(t, filepath.Join(dir, "again"), chunks)
	got := withoutLedger(t, again, "a")
	for i := range want.Checkpoints {
		want.Checkpoints[i].NewBytes, got.Checkpoints[i].NewBytes = 0, 0
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("it is\n%+v\nit was\n%+v", got, want)
	}
}

// A commit that failed at its last step may come back; it never takes the place of one that was acknowledged.
func TestAFailedCommitNeverReplacesAnAcknowledgedOne(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	newVM(t, s, "a")
	fail := errors.New("no")
	s.beforeCommit = func() error { return fail }
	if _, err := tryCheckpoint(s, "a", memBytes, delta{1: page(1)}); !errors.Is(err, fail) {
		t.Fatal(err)
	}
	s.beforeCommit = nil
	// Another session, whose numbers begin anew.
	s.Close()
	s = reopen(t, l.config().Dir, l.chunks)
	want := checkpoint(t, s, "a", memBytes, delta{1: page(2)})
	s.beforeCommit = func() error { return fail }
	if _, err := tryCheckpoint(s, "a", memBytes, delta{1: page(3)}); !errors.Is(err, fail) {
		t.Fatal(err)
	}
	l.chunks = l.chunks.Crash()
	l.dir = t.TempDir()
	s, _ = l.rebuild()
	h := travelled(t, s, "a")
	if len(h.Checkpoints) != 2 || h.Checkpoints[0].Snapshot != want.Snapshot {
		t.Fatalf("%+v", h)
	}
}

func TestManyVMsMakeACatalogueOfManyParts(t *testing.T) {
	l := &lost{t, t.TempDir(), castest.NewMemory()}
	s := reopen(t, l.config().Dir, l.chunks)
	newVM(t, s, "a")
	checkpoint(t, s, "a", memBytes, delta{1: page(1)})
	h := travelled(t, s, "a")
	first := h.Checkpoints[0]
	for n := 2; n <= 9; n++ { // a history of several pieces
		c := first
		c.Number, c.Parent, c.Label = n, n-1, string(make([]byte, maxLabelBytes))
		h.Checkpoints = append(h.Checkpoints, c)
	}
	h.Next = 10
	if err := s.ImportVM(t.Context(), h, ImportOptions{As: "long"}); err != nil {
		t.Fatal(err)
	}
	if err := s.update(t.Context(), func(tx *badger.Txn) (err error) {
		for i := range 2000 {
			err = errors.Join(err, putJSON(tx, bundleKey(fmt.Sprint(i)), bundleRecord{Snapshot: hexHash(first.Snapshot), Created: first.Created}))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	l.lose()
	s, r := l.rebuild()
	if len(r.VMs) != 2 || r.VMs[1].Checkpoints != 9 || len(r.Bundles) != 2000 || len(r.Problems) > 0 {
		t.Fatalf("%d VMs, %d bundles, %q", len(r.VMs), len(r.Bundles), r.Problems)
	}
	if got := travelled(t, s, "long"); len(got.Checkpoints) != 9 {
		t.Fatal(len(got.Checkpoints))
	}
}

func TestMissingNotesAreFoundAndWrittenAnew(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	chunks := &without{openPacks(t, filepath.Join(dir, "chunks")), map[cas.Hash]bool{}}
	s := reopen(t, filepath.Join(dir, "meta"), chunks)
	newVM(t, s, "a")
	checkpoint(t, s, "a", memBytes, delta{1: page(1)})
	all, err := chunks.HashesOf(ctx, cas.KindNote)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d notes, %v", len(all), err)
	}
	chunks.hidden[all[0]] = true
	r, err := s.Check(ctx, CheckOptions{})
	if err != nil || r.Worst != Harmless || len(r.Findings) != 1 || r.Findings[0].Kind != "note" {
		t.Fatalf("%v, %+v", err, r)
	}
	if r, err = s.Check(ctx, CheckOptions{Repair: true}); err != nil || len(r.Findings) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if r, err = s.Check(ctx, CheckOptions{}); err != nil || r.Worst != "" {
		t.Fatalf("%v, %+v", err, r)
	}
}

// without is packs that lack some chunks.
type without struct {
	*local.Store
	hidden map[cas.Hash]bool
}

func (w *without) Has(ctx context.Context, hs []cas.Hash) ([]bool, error) {
	have, err := w.Store.Has(ctx, hs)
	for i := range have {
		have[i] = have[i] && !w.hidden[hs[i]]
	}
	return have, err
}
