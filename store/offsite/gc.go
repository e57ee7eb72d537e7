package offsite

import (
	"context"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/remote"
)

// GCOptions: without Apply nothing is changed.
type GCOptions struct{ Apply bool }

// GCReport says what a collection found and did, or, not applied, would do.
type GCReport struct {
	Applied        bool  `json:"applied"`
	Refs           int   `json:"refs"`
	Packs          int   `json:"packs"`
	UnreachedPacks int   `json:"unreached_packs"`
	UnreachedBytes int64 `json:"unreached_bytes"`
	Condemned      int   `json:"condemned_packs"` // now
	FreedPacks     int   `json:"freed_packs"`     // condemned earlier, and removed now
	FreedBytes     int64 `json:"freed_bytes"`
	Compacted      int   `json:"compacted_packs"` // of which little is reached; they go with later collections
	WrittenBytes   int64 `json:"written_bytes"`   // of the packs made of them
}

// GC removes packs that nothing reaches, in two runs at least: the first condemns them, one that comes when the grace is
// over removes those that still nothing reaches. It is safe beside pushes and pulls of any host. ErrCollecting when another
// host collects.
func (o *Offsite) GC(ctx context.Context, g GCOptions) (GCReport, error) {
	r := GCReport{Applied: g.Apply}
	done, err := o.turns.take(ctx, "\x00gc") // no VM's name
	if err != nil {
		return r, err
	}
	defer done()
	if g.Apply {
		err = o.collect(ctx, &r)
	} else {
		err = o.measure(ctx, &r)
	}
	if err != nil {
		return r, o.wrap("collect", err)
	}
	return r, nil
}

// measure says what a collection would find.
func (o *Offsite) measure(ctx context.Context, r *GCReport) error {
	list, _, err := o.readCondemned(ctx)
	if err != nil {
		return err
	}
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	m := o.newMarks(list.ids(), false)
	if err := m.read(ctx); err != nil {
		return err
	}
	o.count(m, list, r)
	return nil
}

// count fills in what was found.
func (o *Offsite) count(m *marks, list *condemned, r *GCReport) {
	packs := o.c.Remote.Packs()
	r.Refs, r.Packs, r.Condemned = m.refs, len(packs), len(list.Packs)
	r.UnreachedPacks, r.UnreachedBytes = 0, 0
	for _, p := range packs {
		if !m.reaches(p.ID) {
			r.UnreachedPacks++
			r.UnreachedBytes += p.Bytes
		}
	}
}

func (o *Offsite) collect(ctx context.Context, r *GCReport) error {
	c, err := o.beginCollection(ctx)
	if err != nil {
		return err
	}
	defer c.end()
	ctx = c.ctx
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return c.blame(err)
	}
	m := o.newMarks(c.list().ids(), true)
	if err := m.read(ctx); err != nil {
		return c.blame(err)
	}
	orphans, err := o.orphans(ctx)
	if err != nil {
		return c.blame(err)
	}
	o.count(m, c.list(), r)
	due, err := c.condemn(m, o.c.Remote.Packs(), orphans)
	if err != nil {
		return c.blame(err)
	}
	if err := c.remove(m, due, r); err != nil {
		return c.blame(err)
	}
	if err := o.compact(ctx, m, c.list().ids(), r); err != nil {
		return c.blame(err)
	}
	r.Condemned = len(c.list().Packs)
	return nil
}

// condemn brings the list up to date: packs that are reached again leave it, those that nothing reaches enter it, and those
// whose grace is over are marked as being removed, which it gives: they entered in an earlier run. So are old tombstones.
func (c *collection) condemn(m *marks, there []remote.PackSource, orphans []condemnedPack) (due []condemnedPack, err error) {
	now := c.o.now()
	err = c.change(c.ctx, func(list *condemned) {
		due, list.Tombstones = nil, nil
		for _, r := range m.removed {
			if !m.pushing[r.VM] && now.Sub(r.Pushed) >= max(c.o.c.Grace, 0) {
				list.Tombstones = append(list.Tombstones, r.VM)
			}
		}
		listed := list.ids()
		list.Packs = slices.DeleteFunc(list.Packs, func(k condemnedPack) bool { return m.reaches(cas.PackID(k.Pack)) })
		for i := range list.Packs {
			k := &list.Packs[i]
			if k.State == stateDeleting || now.Sub(k.Since) >= max(c.o.c.Grace, 0) {
				k.State = stateDeleting
				due = append(due, *k)
			}
		}
		for _, p := range there {
			if !listed[p.ID] && !m.reaches(p.ID) {
				list.Packs = append(list.Packs, condemnedPack{packID(p.ID), p.ContentHash, p.Bytes, now, stateCondemned})
			}
		}
		for _, k := range orphans {
			if !listed[cas.PackID(k.Pack)] && !m.reaches(cas.PackID(k.Pack)) {
				k.Since, k.State = now, stateCondemned
				list.Packs = append(list.Packs, k)
			}
		}
	})
	return due, err
}

// remove removes what is due and still nothing reaches. It was published as being removed before the roots are read once
// more: who puts a lease or a hold after that reading sees it, and waits.
func (c *collection) remove(m *marks, due []condemnedPack, r *GCReport) error {
	tombstones := c.list().Tombstones
	if len(due) == 0 && len(tombstones) == 0 {
		return nil
	}
	if err := m.read(c.ctx); err != nil {
		return err
	}
	// Right before: who was taken for dead must not remove anything.
	if err := c.renew(c.ctx); err != nil {
		return err
	}
	var ids []cas.PackID
	var contents []cas.Hash
	for _, k := range due {
		if !m.reaches(cas.PackID(k.Pack)) {
			ids, contents = append(ids, cas.PackID(k.Pack)), append(contents, k.Content)
			r.FreedBytes += k.Bytes
		}
	}
	r.FreedPacks = len(ids)
	if len(ids) > 0 {
		if _, err := c.o.c.Remote.Drop(c.ctx, ids); err != nil {
			return err
		}
		// And those that no catalogue names: an upload never ended, or a removal.
		if err := c.o.c.Remote.RemoveObjects(c.ctx, contents); err != nil {
			return err
		}
	}
	for _, vm := range tombstones {
		if m.pushing[vm] || !slices.ContainsFunc(m.removed, func(r *refRecord) bool { return r.VM == vm }) {
			continue
		}
		for _, key := range []string{setsKey(vm), refKey(vm)} {
			if err := c.o.c.Bucket.Delete(c.ctx, key); err != nil {
				return err
			}
		}
	}
	gone := map[packID]bool{}
	for _, k := range due {
		gone[k.Pack] = true // or rescued
	}
	return c.change(c.ctx, func(list *condemned) {
		list.Tombstones = nil
		list.Packs = slices.DeleteFunc(list.Packs, func(k condemnedPack) bool { return gone[k.Pack] })
	})
}

// ids gives the packs of the list.
func (c *condemned) ids() map[cas.PackID]bool {
	ids := map[cas.PackID]bool{}
	for _, k := range c.Packs {
		ids[cas.PackID(k.Pack)] = true
	}
	return ids
}

// neverHeard is how long a collection may go on without having renewed its claim: less than what it takes others to take it
// for dead.
const neverHeard = leaseTime / 2

const _ = uint(neverHeard - leaseTime/5 - time.Minute) // one renewal may fail
