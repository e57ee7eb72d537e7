package offsite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"flash/cas/bucket"
)

// collection is the one collection that runs in a bucket: whose it is stands in the list of condemned packs, which only it
// moves. It renews that, and ends by itself when it can't.
type collection struct {
	o      *Offsite
	run    string
	ctx    context.Context // ends when the collection is lost
	lose   context.CancelCauseFunc
	cancel context.CancelFunc // of the renewals
	done   chan struct{}

	mu      sync.Mutex // guards the rest; held across puts, so that there is one at a time
	now     *condemned
	version bucket.Version
	renewed time.Time
}

// beginCollection claims the list. ErrCollecting when another host has it, and lives.
func (o *Offsite) beginCollection(ctx context.Context) (*collection, error) {
	var id [16]byte
	o.random(id[:])
	c := &collection{o: o, run: hex.EncodeToString(id[:]), done: make(chan struct{})}
	var err error
	if c.now, c.version, err = o.readCondemned(ctx); err != nil {
		return nil, err
	}
	if who := c.now.Collector; who != nil {
		alive := o.watched.alive(condemnedKey, c.version, o.now())
		if who.Host != o.c.Host && alive { // one of this host was of a process that has ended
			return nil, fmt.Errorf("%w: host %s has begun one at %s, and is taken for dead when it isn't heard of for %s", ErrCollecting,
				who.HostName, who.Began.Format(timeForm), leaseTime)
		}
		o.c.Log.Warn("a collection that didn't end is gone on with", "host", who.HostName, "began", who.Began)
	}
	c.now.Collector = &collector{Host: o.c.Host, HostName: o.c.HostName, Run: c.run, Began: o.now()}
	c.version, err = o.put(ctx, condemnedKey, encodeObject(c.now), whenStill(c.version))
	if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
		return nil, fmt.Errorf("%w: another host has just begun one: %w", ErrCollecting, err)
	}
	if err != nil {
		return nil, err
	}
	c.renewed = o.now()
	c.ctx, c.lose = context.WithCancelCause(ctx)
	var renewals context.Context
	renewals, c.cancel = context.WithCancel(c.ctx)
	go c.keep(renewals)
	return c, nil
}

// keep renews until the collection ends or is lost.
func (c *collection) keep(ctx context.Context) {
	defer close(c.done)
	for c.o.wait(ctx, leaseTime/5) == nil {
		err := c.renew(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		c.mu.Lock()
		silent := c.o.now().Sub(c.renewed)
		c.mu.Unlock()
		if !errors.Is(err, bucket.ErrUnavailable) || silent > neverHeard {
			c.lose(err)
			return
		}
	}
}

// renew says that it goes on.
func (c *collection) renew(ctx context.Context) error {
	return c.change(ctx, func(*condemned) {})
}

// change moves the list. It fails with ErrCollecting when another has taken it.
func (c *collection) change(ctx context.Context, f func(list *condemned)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.now
	next.Packs = slices.Clone(c.now.Packs)
	who := *c.now.Collector
	who.Renewed++
	next.Collector = &who
	f(&next)
	version, err := c.o.put(ctx, condemnedKey, encodeObject(&next), bucket.Condition{Match: c.version})
	if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("%w: this one was taken for dead: %w", ErrCollecting, err)
	}
	if err != nil {
		return err
	}
	c.now, c.version, c.renewed = &next, version, c.o.now()
	return nil
}

// list gives the list as it is; it isn't changed.
func (c *collection) list() *condemned {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// blame says why the collection was lost, when that is why something has failed.
func (c *collection) blame(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// end gives the list free. That it couldn't shows in the next collection, which goes on with this one.
func (c *collection) end() {
	c.cancel()
	<-c.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), endTimeout)
	defer cancel()
	c.lose(nil)
	if err := c.change(ctx, func(list *condemned) { list.Collector = nil }); err != nil {
		c.o.c.Log.Warn("a collection couldn't say that it has ended", "err", err)
	}
}
