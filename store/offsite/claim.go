package offsite

import (
	"context"
	"fmt"

	"flash/store/manifest"
)

// TakeOver makes this host the owner of a VM that it has, without moving data. ErrNoRef; ErrDiverged when the bucket has
// what this host hasn't: that is pulled first.
func (o *Offsite) TakeOver(ctx context.Context, vm string) (Ref, error) {
	var ref Ref
	err := again(ctx, func() error {
		at, err := o.readRef(ctx, vm)
		if err != nil {
			return err
		}
		if at.isNone() {
			return ErrNoRef
		}
		here, err := o.c.Store.ExportVM(ctx, vm)
		if err != nil {
			return err
		}
		if why := lacks(&here, at.history); why != "" {
			return fmt.Errorf("%s: pull it with the take-over, or fork it: %w", why, ErrDiverged)
		}
		ref, err = o.claim(ctx, at, at.history)
		return err
	})
	if err != nil {
		return Ref{}, o.wrap("take over flashvm "+vm, err)
	}
	return ref, nil
}

// claim makes this host the owner of what at shows, with h as its history, which reaches nothing else. errAgain when the ref
// has moved.
func (o *Offsite) claim(ctx context.Context, at refAt, h *manifest.History) (Ref, error) {
	if at.ref.Owner == o.c.Host && lacks(h, at.history) == "" {
		return o.public(at.ref, at.history), nil
	}
	r := *at.ref
	var err error
	if r.History, err = h.Append(nil); err != nil {
		return Ref{}, err
	}
	r.Owner, r.HostName, r.Since = o.c.Host, o.c.HostName, o.now()
	r.Epoch++
	r.Seq++
	moved, err := o.moveRef(ctx, at, &r)
	if err != nil {
		return Ref{}, err
	}
	o.c.Log.Info("a flashvm was taken over", "flashvm", r.VM, "from", at.ref.HostName, "epoch", r.Epoch)
	return o.public(moved.ref, h), nil
}

// Remove takes a VM's ref out of the bucket. Its packs go with the next collections. ErrNoRef, ErrNotOwner.
//
// What stays is a tombstone of some hundred bytes, until a collection that comes when the grace is over: buckets have no
// removal with a condition, and one without could hit what another host has put in its place meanwhile.
func (o *Offsite) Remove(ctx context.Context, vm string) error {
	done, err := o.turns.take(ctx, vm)
	if err != nil {
		return err
	}
	defer done()
	err = again(ctx, func() error {
		at, err := o.readRef(ctx, vm)
		if err != nil {
			return err
		}
		if at.isNone() {
			return ErrNoRef
		}
		if at.ref.Owner != o.c.Host {
			return o.notOwner(at.ref)
		}
		r := *at.ref
		r.Removed, r.History, r.Pushed = true, nil, o.now()
		r.Seq++
		_, err = o.moveRef(ctx, at, &r)
		return err
	})
	if err != nil {
		return o.wrap("remove flashvm "+vm, err)
	}
	o.forgetPushed(vm)
	return nil
}

func (o *Offsite) notOwner(r *refRecord) error {
	return &OwnerError{VM: r.VM, Location: o.c.Bucket.Location(), Host: r.HostName, HostID: r.Owner, Epoch: r.Epoch, Since: r.Since}
}

// lacks tells what a history there has that the one here should have and hasn't; "": nothing. Checkpoints that were
// removed here are not missing: the ledger tells that they were.
func lacks(here, there *manifest.History) string {
	if !here.Created.Equal(there.Created) {
		return fmt.Sprintf("the one here was created at %s, the one there at %s: they are two", here.Created.Format(timeForm), there.Created.Format(timeForm))
	}
	if n := len(there.Checkpoints); n > 0 && there.Checkpoints[n-1].Number >= here.Next {
		return fmt.Sprintf("checkpoint %d is there, the newest here was %d", there.Checkpoints[n-1].Number, here.Next-1)
	}
	i := 0
	for _, c := range there.Checkpoints {
		for i < len(here.Checkpoints) && here.Checkpoints[i].Number < c.Number {
			i++
		}
		if i < len(here.Checkpoints) && here.Checkpoints[i].Number == c.Number && here.Checkpoints[i].Snapshot != c.Snapshot {
			return fmt.Sprintf("checkpoint %d is another there", c.Number)
		}
	}
	if len(there.Ledger) == 0 {
		return ""
	}
	last := there.Ledger[len(there.Ledger)-1]
	if len(here.Ledger) == 0 || here.Ledger[len(here.Ledger)-1].Seq < last.Seq {
		return fmt.Sprintf("the ledger there has entry %d, which isn't here", last.Seq)
	}
	if first := here.Ledger[0].Seq; last.Seq >= first && here.Ledger[last.Seq-first].Hash != last.Hash {
		return fmt.Sprintf("entry %d of the ledger is another there", last.Seq)
	}
	return ""
}

const timeForm = "2006-01-02 15:04:05 MST"
