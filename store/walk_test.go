package store

import (
	"context"
	"maps"
	"slices"
	"testing"

	"flash/cas"
)

func TestAWalkSkipsWhatIsKnownAndVisitsTheRest(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	first := checkpoint(t, s, "vm", memBytes, delta{0: page(1), 200: page(2)})
	before := map[cas.Hash]bool{}
	w := NewWalker(m, nil, func(h cas.Hash, _ cas.Kind) { before[h] = true })
	if err := w.Snapshot(ctx, first.Snapshot); err != nil {
		t.Fatal(err)
	}
	if all := withoutNotes(t, m); len(before) != len(all) {
		t.Errorf("%d chunks were visited of %d that are there", len(before), len(all))
	}
	known := maps.Collect(func(yield func(cas.Hash, bool) bool) {
		for h := range w.Walked() {
			if !yield(h, true) {
				return
			}
		}
	})
	second := checkpoint(t, s, "vm", memBytes, delta{200: page(3)})
	var after []cas.Hash
	w = NewWalker(m, func(h cas.Hash) bool { return known[h] }, func(h cas.Hash, _ cas.Kind) { after = append(after, h) })
	if err := w.Snapshot(ctx, second.Snapshot); err != nil {
		t.Fatal(err)
	}
	for _, h := range withoutNotes(t, m) {
		if !before[h] && !slices.Contains(after, h) {
			t.Errorf("chunk %s is new and wasn't visited", h)
		}
	}
	for _, h := range after {
		if known[h] && !isBase(m, after, h) {
			t.Errorf("chunk %s was known and was visited", h)
		}
	}
	if err := w.Snapshot(ctx, cas.Hash{9}); err == nil {
		t.Error("a snapshot that isn't there was walked")
	}
}

// isBase: the base of a patch is visited for each patch, however known it is.
func isBase(from ChunkReader, of []cas.Hash, h cas.Hash) bool {
	r := &nodeReader{from, newNodeCache(1 << 20)}
	for _, o := range of {
		for level := range 3 {
			if n, err := r.readNode(context.Background(), cas.Ref{Hash: o}, level); err == nil && n.Base.Hash == h {
				return true
			}
		}
	}
	return false
}
