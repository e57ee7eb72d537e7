package blockdelta

import (
	"context"
	"fmt"
)

// Cut freezes what was written since the last cut, in constant time.
// Preconditions: no delta is open; no request is in flight.
//
// A write that is in flight all the same is waited for within ctx, and later ones wait for the cut: a delta never
// changes, whatever the caller did.
func (o *Overlay) Cut(ctx context.Context) (*Delta, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frozen != nil || o.cutting != nil {
		return nil, fmt.Errorf("cut: %w", ErrOpen)
	}
	if o.writers > 0 {
		if err := o.drain(ctx); err != nil {
			return nil, err
		}
	}
	if o.closed {
		return nil, fmt.Errorf("cut: %w", ErrClosed)
	}
	d := &Delta{overlay: o, layer: o.top}
	o.frozen, o.top = o.top, newLayer()
	return d, nil
}

// drain waits until no write is in flight. Precondition: o.mu is held; it is given up while waiting, and no write
// begins and no other cut goes on before drain has returned.
func (o *Overlay) drain(ctx context.Context) error {
	cutting, drained := make(chan struct{}), make(chan struct{})
	o.cutting, o.drained = cutting, drained
	o.mu.Unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	o.mu.Lock()
	left := o.writers
	o.cutting, o.drained = nil, nil
	close(cutting) // those that wait need o.mu to go on, which the caller holds until the cut is done
	if left > 0 {
		return fmt.Errorf("cut: %d writes are still in flight: %w", left, ctx.Err())
	}
	return nil
}
