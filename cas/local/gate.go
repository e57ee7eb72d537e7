package local

import "sync"

// gate lets operations in until it is shut, and lets the shutter wait for those inside.
type gate struct {
	mu     sync.Mutex // guards the rest
	inside int
	shut   bool
	empty  *sync.Cond // made by shutAndWait
}

func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return ErrClosed
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		g.empty.Broadcast()
	}
}

// shutAndWait returns false when the gate was shut before.
func (g *gate) shutAndWait() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.shut = true
	g.empty = sync.NewCond(&g.mu)
	for g.inside > 0 {
		g.empty.Wait()
	}
	return true
}
