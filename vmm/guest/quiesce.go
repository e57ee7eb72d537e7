package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// quiet is one Quiesce.
type quiet struct {
	id     uint32
	held   chan struct{} // closed by the reader when HELD has come; it does nothing then but wait for resume
	resume chan struct{} // closed by release
}

const quiesceLimit = 30 * time.Second // when the caller gives none

// Quiesce waits until the channel is at rest and keeps it so – nothing is read or written – until the returned
// function is called. Output of running execs waits in the guest meanwhile.
//
// HOLD is the last frame we write and HELD the last one the guest writes, after it has taken in all of ours. So when HELD
// is here nothing is under way in either direction, and the reader, which has just found it, parks itself.
func (c *Client) Quiesce(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, quiesceLimit)
	defer cancel()
	select {
	case <-c.quieting:
	case <-c.closed:
		return nil, fmt.Errorf("bring the channel to rest: %w", c.failure())
	case <-ctx.Done():
		return nil, fmt.Errorf("bring the channel to rest: another caller holds it: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	c.lastID++
	q := &quiet{id: c.lastID, held: make(chan struct{}), resume: make(chan struct{})}
	c.quiet = q
	c.mu.Unlock()
	c.link.hold(frame{Type: typeHold, Generation: c.generation, ID: q.id})
	var once sync.Once
	release = func() { once.Do(func() { c.release(q) }) }

	select {
	case <-q.held:
		c.link.rest()
		if !c.isClosed() {
			return release, nil
		}
		err = c.failure()
	case <-c.closed:
		err = c.failure()
	case <-ctx.Done():
		err = fmt.Errorf("no answer from the guest: %w", context.Cause(ctx))
	}
	release()
	return nil, fmt.Errorf("bring the channel to rest: %w", err)
}

func (c *Client) release(q *quiet) {
	c.mu.Lock()
	c.quiet = nil
	c.mu.Unlock()
	close(q.resume)
	c.link.release(q.id, &frame{Type: typeRelease, Generation: c.generation, ID: q.id})
	c.quieting <- struct{}{}
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// park is where the reader stays while the channel is at rest.
func (c *Client) park(id uint32, d *decoder) error {
	c.mu.Lock()
	q := c.quiet
	if q == nil || q.id != id {
		c.mu.Unlock()
		return nil // its Quiesce has given up
	}
	if d.pendingBytes() > 0 {
		c.mu.Unlock()
		return errors.New("the guest went on writing after it had said that it wouldn't")
	}
	close(q.held)
	c.mu.Unlock()
	select {
	case <-q.resume:
	case <-c.closed:
	}
	return nil
}
