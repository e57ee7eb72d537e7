package memtrack

import "sync"

const (
	arenaPages = 16384 // 64 MiB
	arenaBytes = arenaPages * PageBytes
	maxFree    = 4 // arenas kept for reuse: 256 MiB
)

// arena is 64 MiB outside the garbage-collected heap, touched in advance.
type arena struct{ bytes []byte }

// arenas is shared by all trackers of the process: a delta is open for some milliseconds at a time, so a hundred machines
// need a few arenas, not a hundred. It is a cache; nothing depends on what it holds.
var arenas arenaCache

type arenaCache struct {
	mu   sync.Mutex // guards the rest
	free []*arena
	held int // by open deltas
}

// Prepare sees to it that a first cut of up to 64 MiB finds an arena that needs no page faults.
// A tracker calls it in Start, outside any pause.
func Prepare() error {
	a, err := arenas.take()
	if err != nil {
		return err
	}
	arenas.give(a)
	return nil
}

func (c *arenaCache) take() (*arena, error) {
	c.mu.Lock()
	if last := len(c.free) - 1; last >= 0 {
		a := c.free[last]
		c.free = c.free[:last]
		c.mu.Unlock()
		return a, nil
	}
	c.mu.Unlock()
	return newArena(arenaBytes)
}

// takeHeld gives an arena for a delta to hold; nil if there are heldArenas already and the delta can do without.
func (c *arenaCache) takeHeld(optional bool) (*arena, error) {
	c.mu.Lock()
	full := optional && c.held >= heldArenas
	if !full {
		c.held++
	}
	c.mu.Unlock()
	if full {
		return nil, nil
	}
	a, err := c.take()
	if err != nil {
		c.mu.Lock()
		c.held--
		c.mu.Unlock()
	}
	return a, err
}

// hold counts an arena that was taken as held.
func (c *arenaCache) hold() {
	c.mu.Lock()
	c.held++
	c.mu.Unlock()
}

func (c *arenaCache) giveHeld(a *arena) {
	c.mu.Lock()
	c.held--
	c.mu.Unlock()
	c.give(a)
}

// give keeps a for the next cut, or frees it when enough are kept.
func (c *arenaCache) give(a *arena) {
	c.mu.Lock()
	if len(c.free) < maxFree {
		c.free = append(c.free, a)
		a = nil
	}
	c.mu.Unlock()
	if a != nil {
		a.release()
	}
}
