package fake

import (
	"context"
	"errors"
	"sync"
)

// ErrInjected is what a Nth makes a step fail with.
var ErrInjected = errors.New("a fault was injected")

// Nth makes the Nth step fail, counted from 1 and over all steps its Fault is asked about. The usual loop runs a whole
// operation again and again with N = 1, 2, 3 … until Fired is false, so each step has failed once.
type Nth struct {
	N    int    // 0: none
	Only string // count only steps of this name; "": all

	mu    sync.Mutex // guards N and the rest
	count int
	fired string // the step that failed; "": none yet
}

// Fault is for Config.Fault.
func (f *Nth) Fault(_ context.Context, step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Only != "" && f.Only != step {
		return nil
	}
	f.count++
	if f.count != f.N {
		return nil
	}
	f.fired = step
	return ErrInjected
}

// Fired tells whether there was an Nth step, and which.
func (f *Nth) Fired() (step string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired, f.fired != ""
}

// Arm makes the Nth step from now on fail; 0: none.
func (f *Nth) Arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count, f.N = 0, n
}
