package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"flash/cas"
	"flash/store/manifest"
)

// ChunkReader is where a walk reads from: the reading half of every cas.Store, and a far tier.
type ChunkReader interface {
	Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error)
	GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error
}

// Walker visits what snapshots reach: records, nodes, the bases of patches, and data. Each node is read once, however many
// snapshots share it; a data chunk is visited once for each node that names it, and its bytes aren't read.
//
// A Walker whose walk has failed has left something out, and must not be used again. It is not safe for concurrent use.
type Walker struct {
	nodeReader
	known func(cas.Hash) bool
	visit func(cas.Hash, cas.Kind)
	seen  map[cas.Hash]struct{} // records and nodes
}

// NewWalker begins a walk. Of a record or a node that is known nothing is read or visited, and nothing below it; nil: none
// is. Like visit, known is called from the goroutine that walks.
func NewWalker(from ChunkReader, known func(cas.Hash) bool, visit func(cas.Hash, cas.Kind)) *Walker {
	if known == nil {
		known = func(cas.Hash) bool { return false }
	}
	// With a cache of its own, so that the nodes of running VMs stay in the other.
	return &Walker{nodeReader{from, newNodeCache(markCacheBytes)}, known, visit, map[cas.Hash]struct{}{}}
}

// markCacheBytes holds the bases that the patches of one VM's checkpoints share.
const markCacheBytes = 16 << 20

// Snapshot walks one snapshot. ErrNotFound, ErrCorrupt, ErrFormat.
func (w *Walker) Snapshot(ctx context.Context, id SnapshotID) error {
	if w.isSeen(id) {
		return nil
	}
	record, err := readRecord(ctx, w.chunks, id)
	if err != nil {
		return err
	}
	w.visit(id, cas.KindSnapshot)
	for _, im := range record.Images {
		if err := w.image(ctx, im); err != nil {
			return fmt.Errorf("snapshot %s: %w", id, err)
		}
	}
	return nil
}

// Walked gives the records and nodes that were walked, each with all below it: not the bases of patches, below which may
// be more.
func (w *Walker) Walked() iter.Seq[cas.Hash] { return maps.Keys(w.seen) }

// isSeen tells whether a record or node needs no walk, and remembers it.
func (w *Walker) isSeen(h cas.Hash) bool {
	if _, ok := w.seen[h]; ok || w.known(h) {
		return true
	}
	w.seen[h] = struct{}{}
	return false
}

func (w *Walker) image(ctx context.Context, im manifest.Image) error {
	if im.Root.Hash.IsZero() {
		return nil
	}
	if err := w.nodes(ctx, manifest.RootLevel(manifest.SlotCount(im.Bytes)), []cas.Ref{im.Root}); err != nil {
		return fmt.Errorf("image %s: %w", im.Name, err)
	}
	return nil
}

// nodes visits the nodes, all of one level and with few reads, and what is below them.
func (w *Walker) nodes(ctx context.Context, level int, refs []cas.Ref) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var fresh []cas.Ref
	for _, r := range refs {
		if !w.isSeen(r.Hash) {
			fresh = append(fresh, r)
		}
	}
	for len(fresh) > 0 {
		some := fresh[:min(len(fresh), manifest.InnerEntries)]
		fresh = fresh[len(some):]
		nodes, err := w.nodesOf(ctx, some, level)
		if err != nil {
			return err
		}
		for i, n := range nodes {
			w.visit(some[i].Hash, cas.KindNode)
			if n.isPatch() {
				w.visit(n.base.Hash, cas.KindNode)
			}
			var below []cas.Ref
			for k := range n.entries {
				e := &n.entries[k]
				switch {
				case e.Tag != manifest.Chunk:
				case level == 0:
					w.visit(e.Hash, cas.KindData)
				default:
					below = append(below, e.Ref())
				}
			}
			if len(below) > 0 {
				if err := w.nodes(ctx, level-1, below); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readRecord reads a snapshot's record.
func readRecord(ctx context.Context, from ChunkReader, id SnapshotID) (*manifest.Snapshot, error) {
	p, err := from.Get(ctx, cas.Ref{Hash: id}, nil)
	if errors.Is(err, cas.ErrNotFound) {
		return nil, fmt.Errorf("snapshot %s: %w: %w", id, ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	record, err := manifest.DecodeSnapshot(p)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	return record, nil
}
