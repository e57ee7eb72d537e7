package store

import (
	"context"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// node is a decoded node with the patch, if it was one, applied. It is shared and never changes.
type node struct {
	level   int
	base    cas.Ref // the full node this one was stored as a patch of; the zero Hash: it is full
	entries []manifest.Entry
}

func (n *node) isPatch() bool { return !n.base.Hash.IsZero() }

// nodeReader reads nodes through a cache.
type nodeReader struct {
	chunks ChunkReader
	cache  *nodeCache
}

// node gives one node, from the cache or by at most two reads.
func (r *nodeReader) node(ctx context.Context, ref cas.Ref, level int) (*node, error) {
	if n := r.cache.get(ref.Hash); n != nil {
		return n, n.check(ref.Hash, level)
	}
	n, err := r.readNode(ctx, ref, level)
	if err != nil || !n.IsPatch() {
		return r.admit(ref.Hash, n, nil, err)
	}
	base, err := r.baseOf(ctx, n)
	return r.admit(ref.Hash, n, base, err)
}

// baseOf gives the full node a patch changes. A base that is itself a patch is refused before it is followed.
func (r *nodeReader) baseOf(ctx context.Context, patch *manifest.Node) (*node, error) {
	if base := r.cache.get(patch.Base.Hash); base != nil {
		return base, base.check(patch.Base.Hash, patch.Level)
	}
	n, err := r.readNode(ctx, patch.Base, patch.Level)
	if err != nil {
		return nil, err
	}
	if n.IsPatch() {
		return nil, fmt.Errorf("node %s is a patch and the base of another: %w", patch.Base.Hash, ErrFormat)
	}
	return r.admit(patch.Base.Hash, n, nil, nil)
}

func (r *nodeReader) readNode(ctx context.Context, ref cas.Ref, level int) (*manifest.Node, error) {
	p, err := r.chunks.Get(ctx, ref, nil)
	if err != nil {
		return nil, fmt.Errorf("tree node of level %d: %w", level, err)
	}
	n, err := manifest.DecodeNode(p, level)
	if err != nil {
		return nil, fmt.Errorf("chunk %s: %w", ref.Hash, err)
	}
	return n, nil
}

// admit turns a decoded node into a cached one.
func (r *nodeReader) admit(h cas.Hash, decoded *manifest.Node, base *node, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	n, err := assemble(h, decoded, base)
	if err == nil {
		r.cache.add(h, n)
	}
	return n, err
}

func assemble(h cas.Hash, decoded *manifest.Node, base *node) (*node, error) {
	n := &node{level: decoded.Level, base: decoded.Base, entries: decoded.Entries}
	if !decoded.IsPatch() {
		return n, nil
	}
	var err error
	n.entries, err = decoded.Over(&manifest.Node{Level: base.level, Base: base.base, Entries: base.entries})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", h, err)
	}
	return n, nil
}

// check refuses a node found in a place of the tree where it can't be.
func (n *node) check(h cas.Hash, level int) error {
	if n.level != level {
		return fmt.Errorf("node %s has level %d, want %d: %w", h, n.level, level, ErrFormat)
	}
	return nil
}

// nodesOf gives many nodes of one level with at most two GetMany. The result is as long as refs, which are all different.
func (r *nodeReader) nodesOf(ctx context.Context, refs []cas.Ref, level int) ([]*node, error) {
	out := make([]*node, len(refs))
	decoded, err := r.readNodes(ctx, refs, level, func(i int, n *node) { out[i] = n })
	if err != nil {
		return nil, err
	}
	var bases []cas.Ref
	seen := map[cas.Hash]*node{}
	for _, d := range decoded {
		if d == nil || !d.IsPatch() {
			continue
		}
		if _, ok := seen[d.Base.Hash]; !ok {
			seen[d.Base.Hash] = nil
			bases = append(bases, d.Base)
		}
	}
	decodedBases, err := r.readNodes(ctx, bases, level, func(i int, n *node) { seen[bases[i].Hash] = n })
	if err != nil {
		return nil, err
	}
	for i, d := range decodedBases {
		if d == nil {
			continue
		}
		if d.IsPatch() {
			return nil, fmt.Errorf("node %s is a patch and the base of another: %w", bases[i].Hash, ErrFormat)
		}
		if seen[bases[i].Hash], err = r.admit(bases[i].Hash, d, nil, nil); err != nil {
			return nil, err
		}
	}
	for i, d := range decoded {
		if d == nil {
			continue
		}
		if out[i], err = r.admit(refs[i].Hash, d, seen[d.Base.Hash], nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readNodes reports the cached ones among refs and reads the others; decoded[i] is nil where cached was called.
func (r *nodeReader) readNodes(ctx context.Context, refs []cas.Ref, level int, cached func(i int, n *node)) (decoded []*manifest.Node, err error) {
	decoded = make([]*manifest.Node, len(refs))
	var missing []cas.Ref
	var at []int
	for i, ref := range refs {
		if n := r.cache.get(ref.Hash); n != nil {
			if err := n.check(ref.Hash, level); err != nil {
				return nil, err
			}
			cached(i, n)
			continue
		}
		missing, at = append(missing, ref), append(at, i)
	}
	if len(missing) == 0 {
		return decoded, nil
	}
	return decoded, r.chunks.GetMany(ctx, missing, func(i int, data []byte, err error) error {
		if err != nil {
			return fmt.Errorf("tree node of level %d: %w", level, err)
		}
		n, err := manifest.DecodeNode(data, level)
		if err != nil {
			return fmt.Errorf("chunk %s: %w", missing[i].Hash, err)
		}
		decoded[at[i]] = n
		return nil
	})
}
