package store

import (
	"context"
	"fmt"
	"sync"

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

const entryBytes = 60 // of a manifest.Entry

// nodeCache keeps the most recently used nodes, up to a number of bytes. It is cut into shards so that many vCPUs'
// faults don't queue at one lock.
type nodeCache struct{ shards [16]nodeShard }

type nodeShard struct {
	mu    sync.Mutex // guards the rest
	items map[cas.Hash]*cachedNode
	ring  cachedNode // ring.next is the most, ring.prev the least recently used
	bytes int
	limit int
}

type cachedNode struct {
	next, prev *cachedNode
	hash       cas.Hash
	node       *node
}

func newNodeCache(limitBytes int) *nodeCache {
	c := &nodeCache{}
	for i := range c.shards {
		s := &c.shards[i]
		s.items = map[cas.Hash]*cachedNode{}
		s.ring.next, s.ring.prev = &s.ring, &s.ring
		s.limit = limitBytes / len(c.shards)
	}
	return c
}

func (c *nodeCache) get(h cas.Hash) *node {
	s := &c.shards[h[0]%16]
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[h]
	if it == nil {
		return nil
	}
	if s.ring.next != it {
		it.unlink()
		it.linkAfter(&s.ring)
	}
	return it.node
}

func (c *nodeCache) add(h cas.Hash, n *node) {
	s := &c.shards[h[0]%16]
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[h]; it != nil {
		return // the same content
	}
	it := &cachedNode{hash: h, node: n}
	it.linkAfter(&s.ring)
	s.items[h] = it
	s.bytes += n.bytes()
	for s.bytes > s.limit && s.ring.prev != it {
		old := s.ring.prev
		old.unlink()
		delete(s.items, old.hash)
		s.bytes -= old.node.bytes()
	}
}

func (n *node) bytes() int { return 200 + len(n.entries)*entryBytes }

func (it *cachedNode) unlink() { it.prev.next, it.next.prev = it.next, it.prev }

func (it *cachedNode) linkAfter(at *cachedNode) {
	it.prev, it.next = at, at.next
	it.prev.next, it.next.prev = it, it
}

// node gives one node, from the cache or by at most two reads.
func (s *Store) node(ctx context.Context, r cas.Ref, level int) (*node, error) {
	if n := s.nodes.get(r.Hash); n != nil {
		return n, n.check(r.Hash, level)
	}
	n, err := s.readNode(ctx, r, level)
	if err != nil || !n.IsPatch() {
		return s.admit(r.Hash, n, nil, err)
	}
	base, err := s.baseOf(ctx, n)
	return s.admit(r.Hash, n, base, err)
}

// baseOf gives the full node a patch changes. A base that is itself a patch is refused before it is followed.
func (s *Store) baseOf(ctx context.Context, patch *manifest.Node) (*node, error) {
	if base := s.nodes.get(patch.Base.Hash); base != nil {
		return base, base.check(patch.Base.Hash, patch.Level)
	}
	n, err := s.readNode(ctx, patch.Base, patch.Level)
	if err != nil {
		return nil, err
	}
	if n.IsPatch() {
		return nil, fmt.Errorf("node %s is a patch and the base of another: %w", patch.Base.Hash, ErrFormat)
	}
	return s.admit(patch.Base.Hash, n, nil, nil)
}

func (s *Store) readNode(ctx context.Context, r cas.Ref, level int) (*manifest.Node, error) {
	p, err := s.chunks.Get(ctx, r, nil)
	if err != nil {
		return nil, fmt.Errorf("tree node of level %d: %w", level, err)
	}
	n, err := manifest.DecodeNode(p, level)
	if err != nil {
		return nil, fmt.Errorf("chunk %s: %w", r.Hash, err)
	}
	return n, nil
}

// admit turns a decoded node into a cached one.
func (s *Store) admit(h cas.Hash, decoded *manifest.Node, base *node, err error) (*node, error) {
	if err != nil {
		return nil, err
	}
	n, err := assemble(h, decoded, base)
	if err == nil {
		s.nodes.add(h, n)
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
func (s *Store) nodesOf(ctx context.Context, refs []cas.Ref, level int) ([]*node, error) {
	out := make([]*node, len(refs))
	decoded, err := s.readNodes(ctx, refs, level, func(i int, n *node) { out[i] = n })
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
	decodedBases, err := s.readNodes(ctx, bases, level, func(i int, n *node) { seen[bases[i].Hash] = n })
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
		if seen[bases[i].Hash], err = s.admit(bases[i].Hash, d, nil, nil); err != nil {
			return nil, err
		}
	}
	for i, d := range decoded {
		if d == nil {
			continue
		}
		if out[i], err = s.admit(refs[i].Hash, d, seen[d.Base.Hash], nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readNodes reports the cached ones among refs and reads the others; decoded[i] is nil where cached was called.
func (s *Store) readNodes(ctx context.Context, refs []cas.Ref, level int, cached func(i int, n *node)) (decoded []*manifest.Node, err error) {
	decoded = make([]*manifest.Node, len(refs))
	var missing []cas.Ref
	var at []int
	for i, r := range refs {
		if n := s.nodes.get(r.Hash); n != nil {
			if err := n.check(r.Hash, level); err != nil {
				return nil, err
			}
			cached(i, n)
			continue
		}
		missing, at = append(missing, r), append(at, i)
	}
	if len(missing) == 0 {
		return decoded, nil
	}
	return decoded, s.chunks.GetMany(ctx, missing, func(i int, data []byte, err error) error {
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
