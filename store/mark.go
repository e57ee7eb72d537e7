package store

import (
	"context"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
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
	// With a cache of its own, so that the nodes of running VMs stay in the other.
	m := &marker{s: s, nodeReader: nodeReader{s.chunks, newNodeCache(markCacheBytes)}, ctx: ctx, visit: visit, seen: map[cas.Hash]struct{}{}}
	for _, h := range roots.plain {
		visit(h)
	}
	var leaves []cas.Ref
	for _, h := range roots.leaves {
		leaves = append(leaves, cas.Ref{Hash: h})
	}
	if err := m.walk(0, leaves); err != nil {
		return 0, fmt.Errorf("mark what is being stored: %w", err)
	}
	for _, im := range roots.images {
		if err := m.image(im); err != nil {
			return 0, fmt.Errorf("mark what is being stored: %w", err)
		}
	}
	for id := range roots.snapshots {
		sn, err := s.Snapshot(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("mark: %w", err)
		}
		visit(id)
		for _, im := range sn.record.Images {
			if err := m.image(im); err != nil {
				return 0, fmt.Errorf("mark snapshot %s: %w", id, err)
			}
		}
	}
	return len(roots.snapshots), nil
}

// markCacheBytes holds the bases that the patches of one VM's checkpoints share.
const markCacheBytes = 16 << 20

type marker struct {
	nodeReader
	s     *Store
	ctx   context.Context
	visit func(cas.Hash)
	seen  map[cas.Hash]struct{} // nodes
}

func (m *marker) image(im manifest.Image) error {
	if im.Root.Hash.IsZero() {
		return nil
	}
	if err := m.walk(manifest.RootLevel(manifest.SlotCount(im.Bytes)), []cas.Ref{im.Root}); err != nil {
		return fmt.Errorf("image %s: %w", im.Name, err)
	}
	return nil
}

// walk visits the nodes, all of one level and with few reads, and what is below them.
func (m *marker) walk(level int, refs []cas.Ref) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	var fresh []cas.Ref
	for _, r := range refs {
		if _, ok := m.seen[r.Hash]; !ok {
			m.seen[r.Hash] = struct{}{}
			fresh = append(fresh, r)
		}
	}
	for len(fresh) > 0 {
		some := fresh[:min(len(fresh), manifest.InnerEntries)]
		fresh = fresh[len(some):]
		nodes, err := m.nodesOf(m.ctx, some, level)
		if err != nil {
			return err
		}
		for i, n := range nodes {
			m.visit(some[i].Hash)
			if n.isPatch() {
				m.visit(n.base.Hash)
			}
			var below []cas.Ref
			for k := range n.entries {
				e := &n.entries[k]
				switch {
				case e.Tag != manifest.Chunk:
				case level == 0:
					m.visit(e.Hash)
				default:
					below = append(below, e.Ref())
				}
			}
			if len(below) > 0 {
				if err := m.walk(level-1, below); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
