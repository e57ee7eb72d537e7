package offsite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"flash/cas"
	"flash/cas/bucket"
)

const (
	// A push waits up to two minutes for a collection that removes packs it relies on.
	askCollecting = time.Second
	maxAsked      = 120
	// endTimeout bounds the removal of a lease or a hold by who is on its way out.
	endTimeout  = 20 * time.Second
	mendTimeout = 10 * time.Minute
	// sureFor is how long a lease needs no asking for: far below leaseTime.
	sureFor = 30 * time.Second
)

// heldLease is a lease of ours that is renewed until it ends.
type heldLease struct {
	o      *Offsite
	key    string
	ctx    context.Context // ends when the lease is lost
	lose   context.CancelCauseFunc
	cancel context.CancelFunc // of the renewals
	done   chan struct{}

	mu      sync.Mutex // guards the rest; held across the renewing put, so that there is one at a time
	lease   lease
	version bucket.Version
	renewed time.Time // by the wall clock, which goes on while the host sleeps
	steady  time.Time // the same by the steady clock, which nobody sets back
}

// takeLease puts a lease that names packs. From then on no collection begins to remove them.
func (o *Offsite) takeLease(ctx context.Context, vm string, packs []cas.PackID) (*heldLease, error) {
	var id [16]byte
	o.random(id[:])
	l := &heldLease{o: o, key: leaseKey(o.c.Host, hex.EncodeToString(id[:])), done: make(chan struct{}),
		lease: lease{object: object{kindLease, objectFormat}, Host: o.c.Host, HostName: o.c.HostName, VM: vm, Began: o.now(), Packs: sortedIDs(packs)}}
	l.renewed, l.steady = o.now(), time.Now()
	version, err := o.put(ctx, l.key, encodeObject(l.lease), bucket.Condition{Absent: true})
	if err != nil {
		// It may be there all the same: a lease too many only keeps packs for a while.
		o.drop(ctx, l.key)
		return nil, fmt.Errorf("put a lease: %w", err)
	}
	l.version = version
	l.ctx, l.lose = context.WithCancelCause(ctx)
	var renewals context.Context
	renewals, l.cancel = context.WithCancel(l.ctx)
	go l.keep(renewals)
	return l, nil
}

// keep renews until the lease ends or is lost.
func (l *heldLease) keep(ctx context.Context) {
	defer close(l.done)
	for l.o.wait(ctx, leaseTime/5) == nil {
		if err := l.renew(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, bucket.ErrUnavailable) {
			l.lose(err)
			return
		}
	}
}

// renew says that the push goes on. errAgain when the lease was taken for dead and removed: a collection may not have seen
// it since, and all that relied on it begins again.
func (l *heldLease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Renewed++
	asked, steady := l.o.now(), time.Now()
	version, err := l.o.put(ctx, l.key, encodeObject(l.lease), bucket.Condition{Match: l.version})
	if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("the lease was taken for dead: %w: %w", errAgain, err)
	}
	if err == nil {
		l.version, l.renewed, l.steady = version, asked, steady
	}
	return err
}

// sure gives nil when no collection can have taken the push for dead: asked right before something is named.
func (l *heldLease) sure(ctx context.Context) error {
	l.mu.Lock()
	fresh := l.o.now().Sub(l.renewed).Abs() < sureFor && time.Since(l.steady) < sureFor
	l.mu.Unlock()
	if fresh {
		return nil
	}
	return l.renew(ctx)
}

// end takes the lease away.
func (l *heldLease) end() {
	l.cancel()
	<-l.done
	l.lose(nil)
	l.o.drop(l.ctx, l.key)
}

// drop removes an object of ours that nobody needs any more; that it stays is no failure of what was done.
func (o *Offsite) drop(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := o.c.Bucket.Delete(ctx, key); err != nil {
		o.c.Log.Warn("an object that nobody needs any more stays in the bucket", "key", key, "err", err)
	}
}

// settle is asked by who has just put a lease or a hold that names packs, for a VM whose ref is to move or for "": none of
// them is being removed, nor is the ref. It waits for a collection that removes some; errAgain when it did.
//
// The order is what counts (the flag principle): a collection marks packs as being removed and then reads leases, we have
// put ours and then read the marks. At least one sees the other. What was removed and cleared before shows in the
// catalogue, which is therefore read last.
func (o *Offsite) settle(ctx context.Context, vm string, packs []cas.PackID) error {
	waited := false
	for tries := 0; ; tries++ {
		c, _, err := o.readCondemned(ctx)
		if err != nil {
			return err
		}
		going := c.deleting()
		if !slices.Contains(c.Tombstones, vm) && !slices.ContainsFunc(packs, func(id cas.PackID) bool { return going[id] }) {
			break
		}
		waited = true
		if tries == maxAsked {
			who := "which was killed"
			if c.Collector != nil {
				who = fmt.Sprintf("begun by host %s at %s", c.Collector.HostName, c.Collector.Began.Format(timeForm))
			}
			return fmt.Errorf("%w: it removes what is needed again, %s: collect once more, which ends it", ErrCollecting, who)
		}
		if err := o.wait(ctx, askCollecting); err != nil {
			return err
		}
	}
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	if waited {
		o.complete.forget()
		return fmt.Errorf("a collection has removed packs: %w", errAgain)
	}
	return nil
}

// mustBeThere gives errAgain when the catalogue doesn't name one of the packs any more.
func (o *Offsite) mustBeThere(packs []cas.PackID) error {
	there := map[cas.PackID]bool{}
	for _, p := range o.c.Remote.Packs() {
		there[p.ID] = true
	}
	for _, id := range packs {
		if !there[id] {
			o.complete.forget()
			return fmt.Errorf("pack %x has gone from the bucket: %w", id, errAgain)
		}
	}
	return nil
}

// readCondemned reads the list; none is an empty one.
func (o *Offsite) readCondemned(ctx context.Context) (*condemned, bucket.Version, error) {
	p, version, err := o.c.Bucket.Get(ctx, condemnedKey, maxObjectBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return &condemned{object: object{kindCondemned, objectFormat}}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	c, err := decodeCondemned(p)
	if err != nil {
		err = fmt.Errorf("%s: %w", condemnedKey, err)
	}
	return c, version, err
}

func sortedIDs(packs []cas.PackID) []packID {
	ids := make([]packID, len(packs))
	for i, id := range packs {
		ids[i] = packID(id)
	}
	slices.SortFunc(ids, func(a, b packID) int { return strings.Compare(string(a[:]), string(b[:])) })
	return slices.Compact(ids)
}
