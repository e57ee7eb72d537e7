package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

// Replace puts a pack object again, whatever is there: a good pack in the place of one that is damaged or missing. Unlike
// Upload it doesn't ask the catalogue, and names the pack only if it isn't named yet.
func (r *Remote) Replace(ctx context.Context, s PackSource) error {
	c, err := r.examine(s)
	if err == nil {
		err = r.replace(ctx, s)
	}
	if err == nil && !r.index.named(s.ContentHash) {
		err = r.publish(ctx, []Catalogued{c})
	}
	if err != nil {
		return fmt.Errorf("put pack %s again to %s: %w", pack.FileName(s.ContentHash), r.Location(), err)
	}
	return nil
}

func (r *Remote) replace(ctx context.Context, s PackSource) error {
	done, err := r.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = r.bucket.Put(ctx, packKey(s.ContentHash), s.Reader, s.Bytes, bucket.Condition{})
	return err
}

// RecatalogueStats says what Recatalogue found.
type RecatalogueStats struct {
	Packs   int          // objects that were looked at
	Named   int          // that are good, and no catalogue named
	Removed []string     // catalogues that were damaged
	Damages []cas.Damage // packs that are damaged: not named
}

// Recatalogue makes the catalogue again where it was damaged: every pack object that no catalogue names is read, every byte,
// and named, and damaged catalogues are removed after that. Nobody may drop or merge meanwhile. Under encryption it
// asks every pack which one it is, for the list doesn't tell.
func (r *Remote) Recatalogue(ctx context.Context) (RecatalogueStats, error) {
	st, err := r.recatalogue(ctx)
	if err != nil {
		err = fmt.Errorf("make the catalogue of %s again: %w", r.Location(), err)
	}
	return st, err
}

func (r *Remote) recatalogue(ctx context.Context) (RecatalogueStats, error) {
	r.refreshMu.Lock()
	defer r.refreshMu.Unlock()
	var st RecatalogueStats
	if err := r.refreshLocked(ctx); err != nil && !isBadCatalogue(err) {
		return st, err
	}
	if _, err := r.damagedCatalogues(ctx); err != nil { // of the future, say: nothing is touched then
		return st, err
	}
	var found []Catalogued
	var mu sync.Mutex // guards found and st
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(verifyAtOnce)
	for info, err := range r.bucket.List(gctx, packPrefix) {
		if err != nil {
			return st, errors.Join(g.Wait(), err)
		}
		st.Packs++
		if h, ok := hashIn(info.Key, packPrefix); ok && r.index.named(h) {
			continue
		}
		g.Go(func() error {
			c, err := r.describe(gctx, info)
			if err != nil && !isDamage(err) && !errors.Is(err, pack.ErrUnsupported) && !errors.Is(err, ErrCatalogue) && !errors.Is(err, bucket.ErrNotFound) {
				return fmt.Errorf("%s: %w", info.Key, err)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				st.Damages = append(st.Damages, cas.Damage{Pack: info.Key, Err: err})
			case !r.index.named(c.ContentHash):
				found = append(found, c)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return st, err
	}
	if st.Named = len(found); st.Named > 0 {
		if err := r.publish(ctx, found); err != nil {
			return st, err
		}
	}
	damaged, err := r.damagedCatalogues(ctx) // now: one with the same packs has the same name, and was put right just now
	if err != nil {
		return st, err
	}
	for _, key := range damaged {
		if err := r.bucket.Delete(ctx, key); err != nil {
			return st, err
		}
		st.Removed = append(st.Removed, key)
	}
	return st, r.refreshLocked(ctx)
}

// damagedCatalogues lists those that can't be used. One of another version, or with another key, isn't damaged: it is an error.
func (r *Remote) damagedCatalogues(ctx context.Context) ([]string, error) {
	known := r.index.knownKeys()
	var damaged []string
	for info, err := range r.bucket.List(ctx, cataloguePrefix) {
		if err != nil {
			return nil, err
		}
		if known[info.Key] {
			continue
		}
		p, err := r.getCatalogue(ctx, info.Key)
		if err == nil {
			_, _, err = r.decodeCatalogue(info.Key, p)
		}
		switch {
		case err == nil || errors.Is(err, bucket.ErrNotFound): // another host's, a moment ago
		case isBadCatalogue(err) && !errors.Is(err, ErrNewer):
			damaged = append(damaged, info.Key)
		default:
			return nil, fmt.Errorf("%s: %w", info.Key, err)
		}
	}
	return damaged, nil
}

// describe reads a pack object whole, and gives what a catalogue says of it; only its name, if it is in one.
func (r *Remote) describe(ctx context.Context, info bucket.Info) (Catalogued, error) {
	var reader io.ReaderAt = &objectReader{ctx, r, info.Key, info.Bytes}
	sealed, err := pack.OpenSealed(reader, info.Bytes)
	if err != nil {
		return Catalogued{}, err
	}
	if r.index.named(sealed.ContentHash) {
		return Catalogued{ContentHash: sealed.ContentHash}, nil
	}
	if info.Bytes <= wholePackBytes {
		whole := make([]byte, info.Bytes)
		if err := r.getParallel(ctx, info.Key, whole, 0); err != nil {
			return Catalogued{}, err
		}
		reader = bytes.NewReader(whole)
	}
	if h, ok := hashIn(info.Key, packPrefix); ok && h != sealed.ContentHash {
		return Catalogued{}, fmt.Errorf("its content hash is %s: %w", sealed.ContentHash, pack.ErrDamaged)
	}
	return r.examine(PackSource{ID: sealed.ID, ContentHash: sealed.ContentHash, Bytes: info.Bytes, Reader: reader})
}
