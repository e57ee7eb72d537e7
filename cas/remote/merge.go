package remote

import (
	"context"
	"fmt"
	"slices"

	"flash/cas"
)

const (
	// manyCatalogues is how many there may be before the small ones are merged.
	manyCatalogues = 64
	// smallCatalogueBytes: two of these fit into one.
	smallCatalogueBytes = targetCatalogueBytes / 2
)

// Merge makes few catalogues of many small ones, if there are many. Nobody else may drop or merge meanwhile: whoever
// merges what another drops would name packs that are gone.
func (r *Remote) Merge(ctx context.Context) error {
	r.refreshMu.Lock()
	defer r.refreshMu.Unlock()
	if err := r.refreshLocked(ctx); err != nil {
		return err
	}
	if err := r.rewrite(ctx, r.index.mergeable(nil), func(cas.Hash) bool { return true }); err != nil {
		return fmt.Errorf("merge the catalogues of %s: %w", r.Location(), err)
	}
	return nil
}

// mergeable gives the small ones, except those given, when there are many.
func (x *index) mergeable(except []*catalogue) []*catalogue {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.catalogues) <= manyCatalogues {
		return nil
	}
	var small []*catalogue
	for _, c := range x.catalogues {
		if c.bytes < smallCatalogueBytes && !slices.Contains(except, c) {
			small = append(small, c)
		}
	}
	return small
}

// rewrite puts catalogues that name what the old ones name and keep wants, and then removes the old ones. refreshMu is held.
func (r *Remote) rewrite(ctx context.Context, old []*catalogue, keep func(contentHash cas.Hash) bool) error {
	if len(old) == 0 {
		return nil
	}
	var packs []Catalogued
	seen := map[cas.Hash]bool{}
	for _, c := range old {
		listed, err := r.packsIn(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.key, err)
		}
		for _, p := range listed {
			if !seen[p.ContentHash] && keep(p.ContentHash) {
				seen[p.ContentHash] = true
				packs = append(packs, p)
			}
		}
	}
	slices.SortFunc(packs, comparePacks)
	made := map[cas.Hash]bool{}
	for _, part := range splitCatalogue(packs) {
		hash, err := r.putCatalogue(ctx, part)
		if err != nil {
			return err
		}
		made[hash] = true
	}
	old = slices.DeleteFunc(old, func(c *catalogue) bool { return made[c.hash] })
	for _, c := range old {
		if err := r.deleteCatalogue(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// packsIn reads a catalogue again, for the whole hashes of its entries.
func (r *Remote) packsIn(ctx context.Context, c *catalogue) ([]Catalogued, error) {
	if p := r.cache.catalogue(c.key); p != nil {
		if hash, packs, err := r.decodeCatalogue(c.key, p); err == nil && hash == c.hash {
			return packs, nil
		}
	}
	p, err := r.getCatalogue(ctx, c.key)
	if err != nil {
		return nil, err
	}
	hash, packs, err := r.decodeCatalogue(c.key, p)
	if err == nil && hash != c.hash {
		err = fmt.Errorf("its content hash was %s and is %s: %w", c.hash, hash, ErrCatalogue)
	}
	return packs, err
}

func (r *Remote) deleteCatalogue(ctx context.Context, c *catalogue) error {
	done, err := r.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := r.bucket.Delete(ctx, c.key); err != nil {
		return err
	}
	r.index.forget(func(other *catalogue) bool { return other == c })
	return nil
}
