package offsite

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
)

// turns lets one at a time do something with a name.
type turns struct {
	mu    sync.Mutex // guards the rest
	taken map[string]chan struct{}
}

// take waits for the turn.
func (t *turns) take(ctx context.Context, name string) (done func(), err error) {
	for {
		t.mu.Lock()
		if t.taken == nil {
			t.taken = map[string]chan struct{}{}
		}
		busy := t.taken[name]
		if busy == nil {
			mine := make(chan struct{})
			t.taken[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, name)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another push or pull of %s: %w", name, ctx.Err())
		}
	}
}

func randomBytes(p []byte) { rand.Read(p) } // it never fails
