package host

import (
	"context"
	"errors"
	"sync"

	"flash/cas"
	"flash/memtrack"
)

// witness passes a guest's memory on and remembers the first page that can never come. A guest that touches such a page
// only stalls, so the wait for its first answer asks here why.
type witness struct {
	memtrack.Source
	found chan struct{} // closed when err is set

	once sync.Once
	err  error
}

func watchMemory(s memtrack.Source) *witness { return &witness{Source: s, found: make(chan struct{})} }

func (w *witness) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	return w.note(w.Source.ReadSlot(ctx, slot, dst))
}

// ReadSlots isn't watched: it brings in what may never be touched, and whoever needs it all gets the error himself.
func (w *witness) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	return w.Source.ReadSlots(ctx, slots, each)
}

func (w *witness) IsZero(ctx context.Context, slot uint64) (bool, error) {
	zero, err := w.Source.IsZero(ctx, slot)
	return zero, w.note(err)
}

func (w *witness) note(err error) error {
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
		w.once.Do(func() { w.err = err; close(w.found) })
	}
	return err
}

// failure is what was found, or nil. Also of a guest that was booted, which has no witness.
func (w *witness) failure() error {
	if w == nil {
		return nil
	}
	select {
	case <-w.found:
		return w.err
	default:
		return nil
	}
}

// endWith ends ctx when a page is found that can never come.
func (w *witness) endWith(ctx context.Context) (context.Context, func()) {
	if w == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-w.found:
			cancel(w.err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
