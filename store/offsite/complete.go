package offsite

import (
	"iter"
	"sync"

	"flash/cas"
)

// completeSet remembers what earlier pushes of this process have found to be whole in the bucket: records and nodes with
// all they reach, and the packs where that is. It holds as long as all of these packs are there, and no longer: a pack that
// goes takes the whole memory with it.
type completeSet struct {
	mu         sync.RWMutex // guards the rest
	generation int
	nodes      map[cas.Hash]struct{}
	packs      map[cas.PackID]struct{}
}

func (c *completeSet) has(h cas.Hash) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.nodes[h]
	return ok
}

// reliedOn gives the packs, and what generation of the memory they are of.
func (c *completeSet) reliedOn() (packs []cas.PackID, generation int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id := range c.packs {
		packs = append(packs, id)
	}
	return packs, c.generation
}

// add remembers more, unless the memory was lost since the generation was told.
func (c *completeSet) add(generation int, nodes iter.Seq[cas.Hash], packs iter.Seq[cas.PackID]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return
	}
	if c.nodes == nil {
		c.nodes, c.packs = map[cas.Hash]struct{}{}, map[cas.PackID]struct{}{}
	}
	for h := range nodes {
		c.nodes[h] = struct{}{}
	}
	for id := range packs {
		c.packs[id] = struct{}{}
	}
}

func (c *completeSet) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.nodes, c.packs = nil, nil
}

func (c *completeSet) isOf(generation int) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.generation == generation
}
