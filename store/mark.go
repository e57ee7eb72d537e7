package store

import (
	"context"
	"fmt"

	"flash/cas"
)

// Mark calls visit for every chunk that any root reaches: records, nodes, the bases of patches, and data. Each node is
// read once, however many snapshots share it; a data chunk is visited once for each node that names it.
//
// What an open transaction is storing right now is visited too, and may not be there yet. What begins after Mark did
// is not seen: whoever sweeps must not remove chunks that were put or found since then.
// An error means that the marks are incomplete and nothing may be removed.
func (s *Store) Mark(ctx context.Context, visit func(cas.Hash)) error {
	_, err := s.mark(ctx, nil, visit)
	return err
}

// mark is Mark as if some checkpoints weren't there; it tells how many snapshots it started from.
func (s *Store) mark(ctx context.Context, without map[string]map[int]bool, visit func(cas.Hash)) (snapshots int, err error) {
	roots, err := s.roots(ctx, without)
	if err != nil {
		return 0, fmt.Errorf("mark: %w", err)
	}
	w := NewWalker(s.chunks, nil, func(h cas.Hash, _ cas.Kind) { visit(h) })
	for _, h := range roots.plain {
		visit(h)
	}
	var leaves []cas.Ref
	for _, h := range roots.leaves {
		leaves = append(leaves, cas.Ref{Hash: h})
	}
	if err := w.nodes(ctx, 0, leaves); err != nil {
		return 0, fmt.Errorf("mark what is being stored: %w", err)
	}
	for _, im := range roots.images {
		if err := w.image(ctx, im); err != nil {
			return 0, fmt.Errorf("mark what is being stored: %w", err)
		}
	}
	for id := range roots.snapshots {
		if err := w.Snapshot(ctx, id); err != nil {
			return 0, fmt.Errorf("mark: %w", err)
		}
	}
	return len(roots.snapshots), nil
}
