package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"flash/cas"
	"flash/cas/bucket"
)

const (
	// maxListings bounds how often a list is read again because a catalogue in it was gone when it was read.
	maxListings = 8
	// maxReadingBytes is the most of catalogues that are read at once.
	maxReadingBytes = 64 << 20
)

// ErrWrongKey: the remote's chunks are named with another key than the one given.
var ErrWrongKey = errors.New("the remote's chunks are named with another key")

// Refresh reads the catalogue objects that weren't read yet, and forgets packs that no catalogue names any more. A
// catalogue that is damaged is ErrCatalogue, and keeps none of the others from being used.
func (r *Remote) Refresh(ctx context.Context) error {
	return r.refreshSince(ctx, r.rounds.now())
}

// refreshSince refreshes unless a round that began after the one named has succeeded meanwhile: many misses at once are
// one refresh.
func (r *Remote) refreshSince(ctx context.Context, round uint64) error {
	r.refreshMu.Lock()
	defer r.refreshMu.Unlock()
	if r.rounds.completed() > round {
		return nil
	}
	return r.refreshLocked(ctx)
}

// refreshLocked reads the list, and again when it changed meanwhile. refreshMu is held.
func (r *Remote) refreshLocked(ctx context.Context) error {
	var err error
	for range maxListings {
		round := r.rounds.begin()
		var gone bool
		if gone, err = r.refreshOnce(ctx, round); err == nil && !gone {
			r.rounds.succeeded(round)
			r.counters.refreshes.Add(1)
			return nil
		}
		if err != nil {
			break
		}
		err = errors.New("its catalogues change faster than they can be read")
	}
	return fmt.Errorf("read the catalogue of %s: %w", r.Location(), err)
}

// refreshOnce reads one list. gone tells that something in it was removed before it was read, and so that its successor
// may be in the next list only.
func (r *Remote) refreshOnce(ctx context.Context, round uint64) (gone bool, err error) {
	listed := map[string]bool{}
	known := r.index.knownKeys()
	var unread []bucket.Info
	for info, err := range r.bucket.List(ctx, cataloguePrefix) {
		if err != nil {
			return false, err
		}
		listed[info.Key] = true
		if !known[info.Key] {
			unread = append(unread, info)
		}
	}
	gone, err = r.readCatalogues(ctx, unread, round)
	if err != nil || gone {
		return gone, err
	}
	for _, o := range r.index.forget(func(c *catalogue) bool { return c.round < round && !listed[c.key] }) {
		r.cache.dropObject(o)
	}
	r.cache.keepCatalogues(listed)
	return false, nil
}

// readCatalogues reads some in parallel, within a bound of memory. Those that are damaged don't hold up the others.
func (r *Remote) readCatalogues(ctx context.Context, unread []bucket.Info, round uint64) (gone bool, err error) {
	room := semaphore.NewWeighted(maxReadingBytes)
	lost, damaged := make([]bool, len(unread)), make([]error, len(unread))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.inFlight)
	for i, info := range unread {
		weight := min(max(info.Bytes, 1), maxReadingBytes)
		if err := room.Acquire(gctx, weight); err != nil {
			break // gctx has ended, and Wait tells why
		}
		g.Go(func() error {
			defer room.Release(weight)
			err := r.readCatalogue(gctx, info.Key, round)
			switch {
			case errors.Is(err, bucket.ErrNotFound):
				lost[i] = true
			case isBadCatalogue(err):
				damaged[i] = fmt.Errorf("%s: %w", info.Key, err)
			case err != nil:
				return fmt.Errorf("%s: %w", info.Key, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	for _, l := range lost {
		gone = gone || l
	}
	return gone, errors.Join(damaged...)
}

func (r *Remote) readCatalogue(ctx context.Context, key string, round uint64) error {
	if p := r.cache.catalogue(key); p != nil && r.takeCatalogue(key, p, round) == nil {
		return nil
	}
	for again := false; ; again = true {
		p, err := r.getCatalogue(ctx, key)
		if err == nil {
			err = r.takeCatalogue(key, p, round)
		}
		if err == nil {
			r.cache.storeCatalogue(key, p)
			return nil
		}
		if again || !isBadCatalogue(err) || errors.Is(err, ErrNewer) {
			return err // damaged on the way it is damaged once
		}
	}
}

// isBadCatalogue tells that an object was read and isn't what a catalogue is.
func isBadCatalogue(err error) bool {
	return errors.Is(err, ErrCatalogue) || errors.Is(err, bucket.ErrIntegrity) || errors.Is(err, bucket.ErrTooLarge)
}

// getCatalogue reads a catalogue object from the bucket.
func (r *Remote) getCatalogue(ctx context.Context, key string) ([]byte, error) {
	done, err := r.request(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	p, _, err := r.bucket.Get(ctx, key, maxCatalogueBytes)
	if err == nil {
		r.counters.cataloguesRead.Add(1)
	}
	return p, err
}

// takeCatalogue decodes one and adds it to the index.
func (r *Remote) takeCatalogue(key string, p []byte, round uint64) error {
	hash, packs, err := r.decodeCatalogue(key, p)
	if err != nil {
		return err
	}
	r.index.add(&catalogue{key: key, hash: hash, bytes: int64(len(p)), round: round}, packs)
	return nil
}

// decodeCatalogue decodes the object under a key, and compares the key where it tells the content hash: a list of a bucket
// that isn't encrypted does, and a good catalogue in another's place would hide what that one names.
func (r *Remote) decodeCatalogue(key string, p []byte) (cas.Hash, []Catalogued, error) {
	keyID, hash, packs, err := DecodeCatalogue(p)
	if err == nil && keyID != r.keyID {
		err = fmt.Errorf("key %08x, given %08x: %w", keyID, r.keyID, ErrWrongKey)
	}
	named, ok := hashIn(key, cataloguePrefix)
	if err == nil && ok && named != hash {
		err = fmt.Errorf("its content hash is %s: %w", hash, ErrCatalogue)
	}
	return hash, packs, err
}

// hashIn reads the content hash out of a key, where it shows.
func hashIn(key, prefix string) (cas.Hash, bool) {
	name, ok := strings.CutPrefix(key, prefix)
	if !ok || len(name) < 64 {
		return cas.Hash{}, false
	}
	h, err := cas.ParseHash(name[:64])
	return h, err == nil
}

// loadCached takes in the catalogues of the cache folder, so that reads work while the bucket can't be reached. What the
// bucket doesn't list any more goes with the first Refresh.
func (r *Remote) loadCached(ctx context.Context) error {
	for key, p := range r.cache.catalogues() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.takeCatalogue(key, p, 0); err != nil {
			r.log.Warn("a cached catalogue can't be used and is read again", "key", key, "err", err)
		}
	}
	return nil
}

func (x *index) knownKeys() map[string]bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	keys := make(map[string]bool, len(x.catalogues))
	for _, c := range x.catalogues {
		keys[c.key] = true
	}
	return keys
}
