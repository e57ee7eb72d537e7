package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"flash/vmm/guest"
)

// silentError: a guest has not answered a question, which costs it nothing, for that long.
type silentError struct{ after time.Duration }

func (e silentError) Error() string      { return fmt.Sprintf("the guest hasn't answered for %s", e.after) }
func (silentError) Is(target error) bool { return target == context.DeadlineExceeded }

func isSilent(err error) bool {
	var silent silentError
	return errors.As(err, &silent)
}

// unlessSilent waits for a command, which may take as long as it likes while the guest answers. It asks now and then, so
// that nobody waits for ever for a guest that never will (I9).
func (h *Host) unlessSilent(ctx context.Context, v *vm, g *guestVM, wait func(ctx context.Context) (guest.ExitStatus, error)) (guest.ExitStatus, error) {
	ctx, give := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(h.deadlines.Control / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if h.silent(ctx, v, g) {
				give(silentError{h.deadlines.Control})
				return
			}
		}
	})
	defer asking.Wait()
	defer give(nil)
	return wait(ctx)
}

// silent asks the guest. One that stands still for a checkpoint can't answer, so then it is asked again afterwards; one
// that waits for room on the host's disk goes on by itself when there is some.
func (h *Host) silent(ctx context.Context, v *vm, g *guestVM) bool {
	ask := func() bool {
		full := h.diskIsFull()
		ctx, cancel := context.WithTimeout(ctx, h.deadlines.Control)
		defer cancel()
		_, err := g.client.Execs(ctx)
		return errors.Is(err, context.DeadlineExceeded) && !full && !h.diskIsFull()
	}
	if !ask() {
		return false
	}
	select {
	case <-v.op:
		v.unlock()
		return ctx.Err() == nil
	default:
	}
	unlock, err := h.lock(ctx, v, "exec")
	if err != nil {
		return false // ctx has ended
	}
	unlock()
	return ask() && ctx.Err() == nil
}

// farewell is how long a machine whose channel has closed may take to end: QEMU still flushes its disks.
const farewell = 5 * time.Second

// awaitEnd waits for the end of a guest that has hung up, so that the reason of its end can be told.
func (g *guestVM) awaitEnd() {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-g.machine.Done():
	case <-timer.C:
	}
}
