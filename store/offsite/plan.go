package offsite

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"flash/cas"
	"flash/cas/remote"
	"flash/store"
	"flash/store/manifest"
)

// plan is what a push has to do so that a history is whole in the bucket.
type plan struct {
	generation int                     // of the completeSet it relies on
	walked     []cas.Hash              // records and nodes that are whole there once it is done
	far        map[cas.PackID]struct{} // packs there that hold what is reached
	near       map[cas.PackID]struct{} // packs here that are to be uploaded
}

// packs are all that must stay there.
func (p *plan) packs() iter.Seq[cas.PackID] {
	return func(yield func(cas.PackID) bool) {
		for _, m := range []map[cas.PackID]struct{}{p.far, p.near} {
			for id := range m {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// plan walks down what the history reaches, past what is known to be whole there, and finds for every chunk a pack: there,
// or else here.
func (o *Offsite) plan(ctx context.Context, h *manifest.History) (*plan, error) {
	relied, generation := o.complete.reliedOn()
	p := &plan{generation: generation, far: map[cas.PackID]struct{}{}, near: map[cas.PackID]struct{}{}}
	for _, id := range relied {
		p.far[id] = struct{}{}
	}
	c := newCollect()
	w := store.NewWalker(o.layered(), o.complete.has, c.visit)
	for _, id := range h.Roots() {
		if err := w.Snapshot(ctx, id); err != nil {
			return nil, err
		}
		if err := o.place(c, p); err != nil {
			return nil, err
		}
	}
	p.walked = slices.Collect(w.Walked())
	return p, nil
}

// place finds packs for what was visited since the last time.
func (o *Offsite) place(c *collect, p *plan) error {
	for _, h := range c.take() {
		ids := o.c.Remote.PacksOf(h)
		if len(ids) > 0 {
			if !slices.ContainsFunc(ids, func(id cas.PackID) bool { _, ok := p.far[id]; return ok }) {
				p.far[ids[0]] = struct{}{}
			}
			continue
		}
		id, ok := o.c.Packs.PackOf(h)
		if !ok {
			return fmt.Errorf("chunk %s: %w", h, ErrIncomplete)
		}
		p.near[id] = struct{}{}
	}
	return nil
}

// sources opens the packs that are to be uploaded. errAgain when one has gone since.
func (o *Offsite) sources(ctx context.Context, p *plan) ([]remote.PackSource, error) {
	var all []remote.PackSource
	ids := slices.SortedFunc(maps.Keys(p.near), func(a, b cas.PackID) int { return strings.Compare(string(a[:]), string(b[:])) })
	for _, id := range ids {
		hash, bytes, ok := o.c.Packs.PackHash(id)
		if !ok {
			return nil, fmt.Errorf("pack %x: %w", id, errAgain)
		}
		r, err := o.c.Packs.OpenPack(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("pack %x: %w: %w", id, errAgain, err)
		}
		all = append(all, remote.PackSource{ID: id, ContentHash: hash, Bytes: bytes, Reader: r})
	}
	return all, nil
}

// collect gathers the chunks that a walk visits, each once.
type collect struct {
	seen  map[cas.Hash]struct{}
	fresh []cas.Hash
}

func newCollect() *collect { return &collect{seen: map[cas.Hash]struct{}{}} }

func (c *collect) visit(h cas.Hash, _ cas.Kind) {
	if _, ok := c.seen[h]; !ok {
		c.seen[h] = struct{}{}
		c.fresh = append(c.fresh, h)
	}
}

// take gives what was visited since the last take.
func (c *collect) take() []cas.Hash {
	fresh := c.fresh
	c.fresh = nil
	return fresh
}
