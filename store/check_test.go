package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"flash/cas"
	"flash/cas/local"
)

// flipRecord damages the record of a chunk where it lies, and gives the pack's name.
func flipRecord(t *testing.T, dir string, chunks *local.Store, h cas.Hash) string {
	t.Helper()
	for _, p := range chunks.PackNames() {
		d, err := chunks.DumpPack(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Records {
			if r.Hash != h {
				continue
			}
			f, err := os.OpenFile(filepath.Join(dir, "chunks", "packs", p), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := make([]byte, 1)
			at := r.Offset + r.Bytes/2
			f.ReadAt(b, at)
			b[0] ^= 4
			if _, err := f.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("no pack has %s", h)
	return ""
}

// threeOf is a VM with three checkpoints; page 7 is in 2 and 3 only.
func threeOf(t *testing.T, s *Store) {
	t.Helper()
	newVM(t, s, "vm")
	checkpoint(t, s, "vm", memBytes, filler(1, 100))
	checkpoint(t, s, "vm", memBytes, delta{150: page(7)})
	checkpoint(t, s, "vm", memBytes, delta{151: page(8)})
}

func TestFlippedByteIsFoundWithTheCheckpointsItTouches(t *testing.T) {
	ctx := context.Background()
	for _, what := range []string{"page", "node", "state", "record"} {
		dir := t.TempDir()
		s, chunks := packed(t, dir, nil)
		threeOf(t, s)
		if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || len(r.Findings) != 0 || r.Snapshots != 3 || r.Read.Records == 0 || r.Nodes == 0 {
			t.Fatalf("%s: nothing is wrong yet: %+v, %v", what, r, err)
		}
		c2, err := s.Checkpoint(ctx, "vm", 2)
		if err != nil {
			t.Fatal(err)
		}
		h, want := chunks.Hasher().Sum(page(7)), []Name{{VM: "vm", Number: 2}, {VM: "vm", Number: 3}}
		switch what {
		case "node":
			h, want = image(t, s, c2.Snapshot, "mem").root.Hash, want[:1]
		case "state":
			h, want = image(t, s, c2.Snapshot, "state").root.Hash, want[:1]
		case "record":
			h, want = c2.Snapshot, want[:1]
		}
		pack := flipRecord(t, dir, chunks, h)
		forget(s)
		r, err := s.Check(ctx, CheckOptions{Read: 1})
		if err != nil || r.Worst != Damage {
			t.Fatalf("%s: %v, worst %q: %+v", what, err, r.Worst, r.Findings)
		}
		found := false
		for _, f := range r.Findings {
			if f.Hash == h {
				touches := slices.Clone(f.Touches)
				slices.SortFunc(touches, func(a, b Name) int { return a.Number - b.Number })
				found = f.Pack == pack && f.Offset > 0 && f.Severity == Damage && slices.Equal(touches, want)
			}
		}
		if !found {
			t.Errorf("%s: want %s in pack %s touching %v: %+v", what, h, pack, want, r.Findings)
		}
		// Structure alone finds what it reads: nodes and records, not pages.
		if r, err = s.Check(ctx, CheckOptions{}); what != "page" && (err != nil || r.Worst != Damage) {
			t.Errorf("%s, structure only: worst %q, %v", what, r.Worst, err)
		}
		if what == "page" {
			if err := image(t, s, c2.Snapshot, "mem").ReadSlot(ctx, 150, make([]byte, cas.SlotBytes)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("the page is served: %v", err)
			}
		}
	}
}

func TestRepairLosesOnlyWhatIsLost(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, chunks := packed(t, dir, nil)
	threeOf(t, s)
	h := chunks.Hasher().Sum(page(7))
	flipRecord(t, dir, chunks, h)
	r, err := s.Check(ctx, CheckOptions{Repair: true})
	if err != nil || r.Repair == nil || len(r.Repair.Quarantined) != 1 || r.Worst != Damage {
		t.Fatalf("%+v, %v", r, err)
	}
	forget(s)
	for n, lost := range map[int]bool{1: false, 2: true, 3: true} {
		c, err := s.Checkpoint(ctx, "vm", n)
		if err != nil {
			t.Fatal(err)
		}
		im := image(t, s, c.Snapshot, "mem")
		for slot := range im.Slots() {
			err := im.ReadSlot(ctx, slot, make([]byte, cas.SlotBytes))
			if (err != nil) != (lost && slot == 150) {
				t.Errorf("checkpoint %d slot %d: %v", n, slot, err)
			}
		}
	}
	gc(t, s, GCOptions{Apply: true}) // a lost page doesn't keep it from collecting
	if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || len(r.Findings) != 1 || r.Findings[0].Kind != "missing" || r.Findings[0].Hash != h {
		t.Errorf("after the repair: %+v, %v", r.Findings, err)
	}
	if err := s.RemoveCheckpoints(ctx, "vm", []int{2}, "damaged"); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, s, "vm", memBytes, delta{150: page(9)})
	if err := s.RemoveCheckpoints(ctx, "vm", []int{3}, "damaged"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Check(ctx, CheckOptions{Read: 1}); err != nil || len(r.Findings) != 0 {
		t.Errorf("without the damaged ones: %+v, %v", r.Findings, err)
	}
}

func TestCheckThatReadNothingIsNoSuccess(t *testing.T) {
	s, _ := packed(t, t.TempDir(), nil)
	if _, err := s.Check(context.Background(), CheckOptions{Read: 1}); !errors.Is(err, ErrNothingChecked) {
		t.Errorf("an empty store: %v", err)
	}
	m, _ := newStore(t)
	threeOf(t, m)
	if _, err := m.Check(context.Background(), CheckOptions{Read: 1}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a store that can't be read: %v", err)
	}
}

func TestGarbageThatIsDamagedIsHarmless(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, chunks := packed(t, dir, nil)
	threeOf(t, s)
	if err := s.MoveHead(ctx, "vm", 1, "rewind"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveCheckpoints(ctx, "vm", []int{2, 3}, "test"); err != nil {
		t.Fatal(err)
	}
	flipRecord(t, dir, chunks, chunks.Hasher().Sum(page(7)))
	r, err := s.Check(ctx, CheckOptions{Read: 1})
	if err != nil || r.Worst != Harmless || len(r.Findings) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhyNamesWhatKeepsAChunk(t *testing.T) {
	ctx := context.Background()
	s, chunks := packed(t, t.TempDir(), nil)
	threeOf(t, s)
	kept, err := s.Why(ctx, chunks.Hasher().Sum(page(7)))
	if err != nil || len(kept) != 2 || kept[0].Image != "mem" || kept[0].Slot != 150 {
		t.Errorf("%+v, %v", kept, err)
	}
	if kept, err := s.Why(ctx, chunks.Hasher().Sum(page(77))); err != nil || len(kept) != 0 {
		t.Errorf("%+v, %v", kept, err)
	}
}
