package bench

import (
	"context"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas/local"
	"flash/store"
	"flash/vmm/fake"
	"flash/vmm/host"
)

// The whole workload, small, over machines that are functions: it runs, and what must be given back is.
func TestCollectionsAreMeasuredAndGiveBackWhatIsDeleted(t *testing.T) {
	ctx, home := t.Context(), t.TempDir()
	chunks, err := local.Open(ctx, local.Config{Dir: home, ReserveBytes: -1, TargetPackBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer chunks.Close()
	s, err := store.Open(ctx, store.Config{Dir: filepath.Join(home, "meta"), Chunks: chunks})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putBundle(t, s)
	h, err := host.New(ctx, host.Config{Store: s, Engine: fake.New(fake.Config{}), Home: home, RunDir: filepath.Join(home, "run"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	r, err := GC(ctx, GCConfig{Store: s, Home: home, FillMiB: 16, DirtMiB: 1, Config: Config{Host: h, Bundle: "tiny", MemMiB: 128, Runs: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) != 8 {
		t.Errorf("%d figures", len(r.Figures))
	}
	for _, f := range r.Figures {
		t.Logf("%s: %.3g, p99 %.3g %s (%s) %s", f.Name, f.Median, f.P99, f.Unit, f.Goal, f.Note)
		if !(f.Median > 0) {
			t.Errorf("%s is %v", f.Name, f.Median)
		}
		if strings.Contains(f.Name, "bytes of packs returned") && f.Median < 98 {
			t.Errorf("%.2f %% came back", f.Median)
		}
	}
}

func putBundle(t *testing.T, s *store.Store) {
	t.Helper()
	txn, err := s.Begin(t.Context(), store.SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	for _, name := range []string{"kernel", "initrd"} {
		if _, err := txn.PutBytes(t.Context(), name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := txn.PutImage(t.Context(), store.ImageSpec{Name: "disk0", Bytes: 64 << 20}, nothing{}); err != nil {
		t.Fatal(err)
	}
	meta := store.Meta{Kind: "bundle", Created: time.Now().UTC(), Facts: map[string]string{"source": "test"}}
	if _, err := txn.Commit(t.Context(), meta, store.Move{Bundle: "tiny"}); err != nil {
		t.Fatal(err)
	}
}

type nothing struct{}

func (nothing) Slots() iter.Seq[uint64]                        { return func(func(uint64) bool) {} }
func (nothing) ReadSlot(context.Context, uint64, []byte) error { return nil }
