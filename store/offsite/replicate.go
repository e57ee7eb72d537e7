package offsite

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"flash/store"
)

// Lag says how far a VM in the bucket is behind the one here.
type Lag struct {
	VM          string    `json:"flashvm"`
	Checkpoints int       `json:"checkpoints"` // that aren't there yet
	Bytes       int64     `json:"bytes"`       // that were stored for them here
	Since       time.Time `json:"since"`       // when the oldest of them was taken; zero: none is behind
	Err         error     `json:"-"`           // why it can't catch up right now; nil: it does
	Reason      string    `json:"reason"`      // Err in words; "": none
	Retry       time.Time `json:"retry"`       // when it is tried again, after Err
}

const (
	firstPause = time.Second
	longPause  = time.Minute
	// claimPause is for what somebody has to settle: a VM that another host owns, or that was rolled back.
	claimPause = 10 * time.Minute
)

// Replicate pushes VMs whenever they have changed, until ctx ends, which is no error. vms names those that are to be there,
// and is asked before each round. changed is to be filled after each commit, and may drop what it has no room for: a round
// pushes all that is new. report is told of every VM whose lag has changed, from one goroutine.
//
// What is pushed already is read from the bucket, so nothing is remembered over a restart. A VM that can't be pushed
// doesn't hold up the others; it is tried again after a pause that doubles up to a minute.
func (o *Offsite) Replicate(ctx context.Context, vms func() []string, changed <-chan struct{}, report func(Lag)) error {
	r := replicator{o: o, report: report, vms: map[string]*replica{}}
	for ctx.Err() == nil {
		next := r.round(ctx, vms())
		if err := r.await(ctx, changed, next); err != nil {
			break
		}
	}
	return nil
}

type replicator struct {
	o      *Offsite
	report func(Lag)
	vms    map[string]*replica
}

// replica is one VM that is kept in the bucket.
type replica struct {
	last      Lag
	told      bool
	pause     time.Duration
	notBefore time.Time // not tried again before
}

// round pushes every VM that is behind and may be tried, and tells when the next may.
func (r *replicator) round(ctx context.Context, vms []string) (next time.Time) {
	for vm := range r.vms {
		if !slices.Contains(vms, vm) {
			delete(r.vms, vm)
		}
	}
	for _, vm := range vms {
		if ctx.Err() != nil {
			return next
		}
		v := r.vms[vm]
		if v == nil {
			v = &replica{}
			r.vms[vm] = v
		}
		r.replicate(ctx, vm, v)
		if !v.notBefore.IsZero() && (next.IsZero() || v.notBefore.Before(next)) {
			next = v.notBefore
		}
	}
	return next
}

func (r *replicator) replicate(ctx context.Context, vm string, v *replica) {
	lag, same, err := r.o.lag(ctx, vm)
	if errors.Is(err, store.ErrNotFound) { // removed here; what is there stays
		delete(r.vms, vm)
		return
	}
	if r.o.now().Before(v.notBefore) {
		lag.Err, lag.Reason, lag.Retry = v.last.Err, v.last.Reason, v.notBefore
		r.tell(v, lag)
		return
	}
	r.tell(v, lag)
	if same {
		return
	}
	if err == nil {
		_, err = r.o.Push(ctx, PushRequest{VM: vm})
	}
	if ctx.Err() != nil || errors.Is(err, store.ErrNotFound) {
		return
	}
	v.notBefore = time.Time{}
	if err == nil {
		v.pause = 0
		if lag, _, err = r.o.lag(ctx, vm); err == nil { // checkpoints may have been taken meanwhile
			r.tell(v, lag)
		}
		return
	}
	v.pause = min(max(2*v.pause, firstPause), longPause)
	wait := v.pause/2 + rand.N(v.pause/2+1) // so that hosts don't come back all at once
	if errors.Is(err, ErrNotOwner) || errors.Is(err, ErrRolledBack) || errors.Is(err, ErrDiverged) {
		wait = claimPause
	}
	v.notBefore = r.o.now().Add(wait)
	lag.Err, lag.Reason, lag.Retry = err, err.Error(), v.notBefore
	r.tell(v, lag)
	r.o.c.Log.Warn("a flashvm can't be replicated and is tried again", "flashvm", vm, "in", wait, "err", err)
}

// tell reports what has changed.
func (r *replicator) tell(v *replica, lag Lag) {
	same := v.told && lag.Checkpoints == v.last.Checkpoints && lag.Bytes == v.last.Bytes && lag.Since.Equal(v.last.Since) &&
		(lag.Err == nil) == (v.last.Err == nil) && lag.Retry.Equal(v.last.Retry)
	v.last = lag
	if same {
		return
	}
	v.told = true
	r.report(lag)
}

// await waits for a change, or until something is tried again.
func (r *replicator) await(ctx context.Context, changed <-chan struct{}, next time.Time) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	elapsed := make(chan struct{})
	if !next.IsZero() {
		go func() {
			defer close(elapsed)
			_ = r.o.wait(waiting, next.Sub(r.o.now()))
		}()
		defer func() { cancel(); <-elapsed }()
	}
	select {
	case <-changed:
	case <-elapsed:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// lag compares a VM here with what was last seen in the bucket; same: there is nothing to push.
func (o *Offsite) lag(ctx context.Context, vm string) (lag Lag, same bool, err error) {
	lag.VM = vm
	there, ok := o.lastPushed(vm)
	if !ok {
		at, err := o.readRef(ctx, vm)
		if ctx.Err() != nil {
			return lag, false, ctx.Err()
		}
		if err == nil && !at.isNone() { // else nothing is known of it, and the push will say why
			there = pushedOf(at.history)
		}
	}
	h, err := o.c.Store.ExportVM(ctx, vm)
	if err != nil {
		return lag, false, err
	}
	for _, c := range h.Checkpoints {
		if there.snapshots[c.Number] == c.Snapshot {
			continue
		}
		lag.Checkpoints++
		lag.Bytes += c.NewBytes
		if lag.Since.IsZero() || c.Created.Before(lag.Since) {
			lag.Since = c.Created
		}
	}
	return lag, ok && there.sum == sumOf(&h), nil
}
