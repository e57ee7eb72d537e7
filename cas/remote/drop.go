package remote

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"flash/cas"
)

// Drop takes packs out of the catalogue, and then removes their objects. The caller has made sure that nothing needs them,
// and that nobody else drops or merges meanwhile; uploads go on beside it. A pack that a catalogue put meanwhile names
// again stays. When it failed, or was killed, between the two, the objects are left and named by nothing: RemoveObjects.
func (r *Remote) Drop(ctx context.Context, ids []cas.PackID) (freedBytes int64, err error) {
	going := map[cas.PackID]bool{}
	for _, id := range ids {
		going[id] = true
	}
	objects, err := r.uncatalogue(ctx, func(p *object) bool { return going[p.id] })
	if err == nil {
		freedBytes, err = r.removeObjects(ctx, objects)
	}
	if err != nil {
		err = fmt.Errorf("drop %d packs of %s: %w", len(ids), r.Location(), err)
	}
	return freedBytes, err
}

// RemoveObjects removes pack objects that no catalogue names: what a Drop left that didn't end, or an upload that never
// will. The caller has made sure that no upload in flight is about to name them. Those that are named stay.
func (r *Remote) RemoveObjects(ctx context.Context, contentHashes []cas.Hash) error {
	if err := r.Refresh(ctx); err != nil {
		return err
	}
	var objects []*object
	for _, h := range contentHashes {
		if !r.index.named(h) {
			objects = append(objects, &object{hash: h})
		}
	}
	_, err := r.removeObjects(ctx, objects)
	return err
}

// uncatalogue writes the catalogues anew that name what is going, without it, and gives the objects that nothing names now.
func (r *Remote) uncatalogue(ctx context.Context, going func(o *object) bool) ([]*object, error) {
	r.refreshMu.Lock()
	defer r.refreshMu.Unlock()
	if err := r.refreshLocked(ctx); err != nil {
		return nil, err
	}
	old, targets := r.index.naming(going)
	old = append(old, r.index.mergeable(old)...)
	if err := r.rewrite(ctx, old, func(h cas.Hash) bool { return targets[h] == nil }); err != nil {
		return nil, err
	}
	// Who named one of them meanwhile had looked into the bucket before it was gone.
	if err := r.refreshLocked(ctx); err != nil {
		return nil, err
	}
	var objects []*object
	for h, o := range targets {
		if !r.index.named(h) {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// naming gives the catalogues that name what is going, and that by content hash.
func (x *index) naming(going func(o *object) bool) (old []*catalogue, targets map[cas.Hash]*object) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	targets = map[cas.Hash]*object{}
	for _, c := range x.catalogues {
		names := false
		for _, o := range c.objects {
			if going(o) {
				targets[o.hash], names = o, true
			}
		}
		if names {
			old = append(old, c)
		}
	}
	return old, targets
}

// removeObjects removes pack objects in parallel, and what is cached of them. It gives the bytes of those that were removed.
func (r *Remote) removeObjects(ctx context.Context, objects []*object) (freedBytes int64, err error) {
	var mu sync.Mutex // guards freedBytes
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.inFlight)
	for _, o := range objects {
		g.Go(func() error {
			done, err := r.request(gctx)
			if err != nil {
				return err
			}
			defer done()
			if err := r.bucket.Delete(gctx, o.key()); err != nil {
				return err
			}
			r.cache.dropObject(o)
			mu.Lock()
			defer mu.Unlock()
			freedBytes += o.bytes
			return nil
		})
	}
	err = g.Wait()
	return freedBytes, err
}
