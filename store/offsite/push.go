package offsite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/remote"
	"flash/store"
	"flash/store/manifest"
)

// PushRequest says what is pushed: the VM's history up to and with Checkpoint.
type PushRequest struct {
	VM         string
	Checkpoint *int // nil: all
	Progress   Progress
}

// PushReport says what a push has moved.
type PushReport struct {
	Ref
	Packs    int           `json:"packs"`     // uploaded now
	NewBytes int64         `json:"new_bytes"` // of them
	Took     time.Duration `json:"took_ns"`
}

// Push uploads what the remote lacks, then moves the ref. ErrNotOwner when another host has claimed the VM. After any
// failure and any kill, pushing again moves what is still absent.
func (o *Offsite) Push(ctx context.Context, r PushRequest) (PushReport, error) {
	began := time.Now()
	done, err := o.turns.take(ctx, r.VM)
	if err != nil {
		return PushReport{}, err
	}
	defer done()
	p := pusher{o: o, r: r}
	err = again(ctx, func() error { return p.push(ctx) })
	p.report.Took = time.Since(began)
	if err != nil {
		return p.report, fmt.Errorf("push flashvm %s to %s: %w", r.VM, o.c.Bucket.Location(), err)
	}
	o.advise("push", p.advice)
	return p.report, nil
}

// pusher is a Push that runs.
type pusher struct {
	o      *Offsite
	r      PushRequest
	report PushReport
	looked bool  // for a chunk that wasn't found
	advice error // why the working sets weren't put
}

func (p *pusher) push(ctx context.Context) (err error) {
	o := p.o
	all, release, err := o.held(ctx, p.r.VM)
	if err != nil {
		return err
	}
	defer release()
	h := all
	if p.r.Checkpoint != nil {
		if h, err = cut(all, *p.r.Checkpoint); err != nil {
			return err
		}
	}
	p.tell("look", 0, 0)
	defer func() {
		if err == nil {
			p.advice = o.pushSets(ctx, h)
		}
	}()
	at, err := o.readRef(ctx, p.r.VM)
	if err != nil {
		return err
	}
	next, err := o.next(at, all, h)
	if err != nil {
		return err
	}
	if next == nil { // what is asked for is there
		p.report.Ref = o.public(at.ref, at.history)
		o.notePushed(at.history)
		return nil
	}
	if err := o.c.Packs.Seal(ctx); err != nil {
		return err
	}
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	p.tell("find what is absent", 0, 0)
	plan, err := o.plan(ctx, h)
	if errors.Is(err, ErrIncomplete) && !p.looked { // a chunk may just have been moved to another pack here
		p.looked = true
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	if err != nil {
		return err
	}
	if len(plan.near) == 0 && at.ref != nil && bytes.Equal(at.ref.History, next.History) {
		o.complete.add(plan.generation, slices.Values(plan.walked), plan.packs())
		p.report.Ref = o.public(at.ref, at.history)
		o.notePushed(at.history)
		return nil
	}
	moved, err := p.move(ctx, plan, at, next)
	if err != nil {
		return err
	}
	p.report.Ref = o.public(moved.ref, h)
	o.notePushed(h)
	return nil
}

// move makes the plan true and then moves the ref, under a lease.
func (p *pusher) move(ctx context.Context, plan *plan, at refAt, next *refRecord) (refAt, error) {
	o := p.o
	l, err := o.takeLease(ctx, p.r.VM, slices.Collect(plan.packs()))
	if err != nil {
		return refAt{}, err
	}
	defer l.end()
	moved, err := p.moveUnder(l, plan, at, next)
	if lost := context.Cause(l.ctx); err != nil && ctx.Err() == nil && lost != nil {
		err = fmt.Errorf("%w: %w", lost, err)
	}
	return moved, err
}

func (p *pusher) moveUnder(l *heldLease, plan *plan, at refAt, next *refRecord) (refAt, error) {
	o, ctx := p.o, l.ctx
	if err := o.settle(ctx, p.r.VM, slices.Collect(plan.packs())); err != nil {
		return refAt{}, err
	}
	var far []cas.PackID
	for id := range plan.far {
		far = append(far, id)
	}
	if err := o.mustBeThere(far); err != nil {
		return refAt{}, err
	}
	if !o.complete.isOf(plan.generation) {
		return refAt{}, fmt.Errorf("another push has found packs gone: %w", errAgain)
	}
	packs, err := o.sources(ctx, plan)
	if err != nil {
		return refAt{}, err
	}
	stats, err := o.c.Remote.UploadIf(ctx, packs, func(done, total int64) { p.tell("upload", done, total) }, l.sure)
	p.report.Packs += stats.NewPacks
	p.report.NewBytes += stats.NewBytes
	if err != nil {
		if errors.Is(err, cas.ErrNotFound) { // a pack was compacted here
			err = fmt.Errorf("%w: %w", errAgain, err)
		}
		return refAt{}, err
	}
	p.tell("move the ref", 0, 0)
	if err := l.sure(ctx); err != nil {
		return refAt{}, errors.Join(err, o.mend(packs))
	}
	moved, err := o.moveRef(ctx, at, next)
	if err == nil {
		o.complete.add(plan.generation, slices.Values(plan.walked), plan.packs())
	}
	return moved, err
}

// mend puts packs again that were named when they had been removed: this host slept between asking for its lease and naming
// them, and its push was taken for dead.
func (o *Offsite) mend(packs []remote.PackSource) error {
	ctx, cancel := context.WithTimeout(context.Background(), mendTimeout)
	defer cancel()
	for _, s := range packs {
		_, err := o.c.Bucket.Put(ctx, packKey(s.ContentHash), s.Reader, s.Bytes, bucket.Condition{Absent: true})
		if err != nil && !errors.Is(err, bucket.ErrCondition) {
			return fmt.Errorf("mend pack %s: %w", s.ContentHash, err)
		}
	}
	return nil
}

func (p *pusher) tell(step string, done, total int64) { p.r.Progress.tell(step, done, total) }

// held gives a VM's history, with all its snapshots held here.
func (o *Offsite) held(ctx context.Context, vm string) (h *manifest.History, release func(), err error) {
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	isHeld := map[cas.Hash]bool{}
	for {
		all, err := o.c.Store.ExportVM(ctx, vm)
		if err != nil {
			return nil, release, err
		}
		fresh := false
		for _, id := range all.Roots() {
			if !isHeld[id] {
				isHeld[id], fresh = true, true
				releases = append(releases, o.c.Store.Hold(id))
			}
		}
		if !fresh { // a snapshot may have gone between its being named and its being held: what is named again hasn't
			return &all, release, nil
		}
	}
}

// cut gives the history as it was when a checkpoint had just been taken, as far as that is known.
func cut(all *manifest.History, upTo int) (*manifest.History, error) {
	h := *all
	n := slices.IndexFunc(h.Checkpoints, func(c manifest.NamedSnapshot) bool { return c.Number == upTo })
	if n < 0 {
		return nil, fmt.Errorf("flashvm %s has no checkpoint %d: %w", h.VM, upTo, store.ErrNotFound)
	}
	h.Checkpoints = h.Checkpoints[:n+1]
	if h.Head > upTo {
		h.Head = upTo
	}
	if n+1 == len(all.Checkpoints) {
		return &h, nil
	}
	h.Next = upTo + 1
	if !slices.ContainsFunc(h.Checkpoints, func(c manifest.NamedSnapshot) bool { return c.Number == h.Head }) {
		h.Head = upTo
	}
	for i, e := range h.Ledger {
		var data struct {
			Checkpoint *int `json:"checkpoint"`
		}
		if e.Kind == "checkpoint" && json.Unmarshal(e.Data, &data) == nil && data.Checkpoint != nil && *data.Checkpoint > upTo {
			h.Ledger = h.Ledger[:i]
			break
		}
	}
	return &h, nil
}

// next gives the ref that h is to have, which is all that is here or a beginning of it; nil when the bucket has more than h
// already. ErrNotOwner, ErrRolledBack, ErrDiverged.
func (o *Offsite) next(at refAt, all, h *manifest.History) (*refRecord, error) {
	p, err := h.Append(nil)
	if err != nil {
		return nil, err
	}
	now := o.now()
	r := &refRecord{VM: h.VM, Owner: o.c.Host, HostName: o.c.HostName, Epoch: 1, Seq: 1, Since: now, Pushed: now, History: p}
	if at.ref == nil {
		return r, nil
	}
	r.Epoch, r.Seq = at.ref.Epoch, at.ref.Seq+1
	if at.ref.Removed {
		r.Epoch++
		return r, nil
	}
	if at.ref.Owner != o.c.Host {
		return nil, o.notOwner(at.ref)
	}
	r.Since = at.ref.Since
	why := lacks(all, at.history)
	switch {
	case why == "" && lacks(h, at.history) != "":
		return nil, nil
	case why == "":
		return r, nil
	}
	kind := ErrRolledBack
	if !h.Created.Equal(at.history.Created) {
		kind = ErrDiverged
	}
	return nil, fmt.Errorf("%w: %s (pushed by %s at %s): pull it, or fork it and push the fork", kind, why, at.ref.HostName, at.ref.Pushed.Format(timeForm))
}
