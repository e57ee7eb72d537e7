package store

import (
	"sync"

	"flash/cas"
)

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

// clear forgets all nodes.
func (c *nodeCache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.items = map[cas.Hash]*cachedNode{}
		s.ring.next, s.ring.prev = &s.ring, &s.ring
		s.bytes = 0
		s.mu.Unlock()
	}
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
