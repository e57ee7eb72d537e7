package remote

import "sync"

// roundCount counts Refreshes, so that whoever waits knows whether one that ended had begun after something happened.
type roundCount struct {
	mu    sync.Mutex // guards the rest
	begun uint64
	done  uint64 // the newest that succeeded
}

func (c *roundCount) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	return c.begun
}

func (c *roundCount) succeeded(round uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = max(c.done, round)
}

// now is the newest round that has begun: any later one sees what is in the bucket now.
func (c *roundCount) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// completed is the newest round that succeeded; 0: none.
func (c *roundCount) completed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}
