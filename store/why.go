package store

import (
	"context"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// Kept is one snapshot that keeps a chunk from being collected.
type Kept struct {
	Name     Name       `json:"name"`
	Snapshot SnapshotID `json:"snapshot"`
	Image    string     `json:"image"` // "": it is the record itself
	Slot     int64      `json:"slot"`  // the first that holds it; -1: it is a node
}

// Why says which names keep a chunk alive, through which image. Empty: nothing does, and gc takes it.
func (s *Store) Why(ctx context.Context, h cas.Hash) ([]Kept, error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	t := newTracer(ctx, s.chunks)
	t.wanted[h] = 0
	kept := []Kept{}
	for _, id := range inOrder(names) {
		sn, err := s.Snapshot(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("why %s: %w", h, err)
		}
		keep := func(image string, slot int64) {
			for _, n := range names[id] {
				kept = append(kept, Kept{n, id, image, slot})
			}
		}
		if id == h {
			keep("", -1)
		}
		for _, im := range sn.record.Images {
			found, err := t.image(im)
			if err != nil {
				return nil, fmt.Errorf("why %s: %w", h, err)
			}
			if len(found) > 0 {
				level := manifest.RootLevel(manifest.SlotCount(im.Bytes))
				keep(im.Name, t.firstSlot(im.Root, level, 0, h))
			}
		}
	}
	return kept, nil
}

// firstSlot finds the first slot that holds h, below a tainted node; -1 when h is a node.
func (t *tracer) firstSlot(ref cas.Ref, level int, first uint64, h cas.Hash) int64 {
	n, err := t.nodeReader.node(t.ctx, ref, level)
	if err != nil {
		return -1
	}
	for i := range n.entries {
		e := &n.entries[i]
		switch {
		case e.Tag != manifest.Chunk:
		case level == 0 && e.Hash == h:
			return int64(first) + int64(i)
		case level > 0 && len(t.tainted[e.Hash]) > 0:
			return t.firstSlot(e.Ref(), level-1, first+uint64(i)*manifest.SlotsUnder(level-1), h)
		}
	}
	return -1
}
