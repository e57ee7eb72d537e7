package host

import (
	"context"
	"errors"
	"fmt"

	"flash/blockdelta"
	"flash/cas"
)

// diskWitness passes a disk's base on and tells of the first block that can never come. The engine keeps disk errors from
// the guest and asks again, which is right for a full disk or object storage that is away, and would be for ever here.
type diskWitness struct {
	blockdelta.Base
	name string
	lost chan<- error // capacity 1
}

func (w diskWitness) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	return w.note(w.Base.ReadSlot(ctx, slot, dst))
}

func (w diskWitness) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	return w.note(w.Base.ReadSlots(ctx, slots, each))
}

func (w diskWitness) note(err error) error {
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound) {
		select {
		case w.lost <- fmt.Errorf("a block of %s is lost: %w", w.name, err):
		default: // one is enough
		}
	}
	return err
}
