package memtrack

import "sync"

const (
	minArenaBytes = 64 << 20  // what Prepare touches in advance: a cut of 16,384 pages
	maxKeptBytes  = 256 << 20 // arenas kept for reuse, all together
)

// arena is memory outside the garbage-collected heap, touched in advance.
type arena struct{ bytes []byte }

// arenas is shared by all trackers of the process: a delta is open for some milliseconds at a time, so a hundred machines
// need a few arenas, not a hundred. It is a cache; nothing depends on what it holds.
var arenas arenaCache

type arenaCache struct {
	mu        sync.Mutex // guards the rest
	free      []*arena
	freeBytes int
}

// Prepare sees to it that a first cut of up to 64 MiB finds an arena that needs no page faults.
// A tracker calls it in Start, outside any pause.
func Prepare() error {
	a, err := arenas.take(minArenaBytes)
	if err != nil {
		return err
	}
	arenas.give(a)
	return nil
}

// take gives an arena of at least n bytes, the smallest that is free, else a new one.
func (c *arenaCache) take(n int) (*arena, error) {
	c.mu.Lock()
	best := -1
	for i, a := range c.free {
		if len(a.bytes) >= n && (best < 0 || len(a.bytes) < len(c.free[best].bytes)) {
			best = i
		}
	}
	if best >= 0 {
		a := c.free[best]
		last := len(c.free) - 1
		c.free[best], c.free[last] = c.free[last], nil
		c.free = c.free[:last]
		c.freeBytes -= len(a.bytes)
		c.mu.Unlock()
		return a, nil
	}
	c.mu.Unlock()
	return newArena(max(minArenaBytes, (n+minArenaBytes-1)/minArenaBytes*minArenaBytes))
}

// give keeps a for the next cut, or frees it when enough is kept.
func (c *arenaCache) give(a *arena) {
	c.mu.Lock()
	if c.freeBytes+len(a.bytes) <= maxKeptBytes {
		c.free, c.freeBytes = append(c.free, a), c.freeBytes+len(a.bytes)
		a = nil
	}
	c.mu.Unlock()
	if a != nil {
		a.release()
	}
}
