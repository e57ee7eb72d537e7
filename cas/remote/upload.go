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

// UploadStats says what an upload moved.
type UploadStats struct {
	Packs, NewPacks int
	NewBytes        int64
}

// statFromBytes: a longer pack is asked for before it is sent, because an upload that was interrupted may have left it.
const statFromBytes = 1 << 20

// Upload puts the absent ones among packs, then catalogue objects that name them: a pack is in the catalogue only when it
// is there. Called again after any failure it moves only what is still absent. Absent is what no catalogue names, as of the
// last Refresh, and the bucket hasn't either. A pack whose bytes don't match its content hash is refused, not sent.
//
// Memory: the packs' entries, and what the bucket needs for InFlight puts that read from their sources.
func (r *Remote) Upload(ctx context.Context, packs []PackSource, p Progress) (UploadStats, error) {
	return r.UploadIf(ctx, packs, p, func(context.Context) error { return nil })
}

// UploadIf is Upload by who must be sure of something right before the packs are named: that nobody has removed them since
// they were put. When still fails, nothing is named.
func (r *Remote) UploadIf(ctx context.Context, packs []PackSource, p Progress, still func(ctx context.Context) error) (UploadStats, error) {
	stats := UploadStats{Packs: len(packs)}
	u := upload{r: r, progress: p}
	seen := map[string]bool{}
	var absent []PackSource
	for _, s := range packs {
		if key := packKey(s.ContentHash); !seen[key] && !r.index.named(s.ContentHash) {
			seen[key] = true
			absent = append(absent, s)
			u.total += s.Bytes
		}
	}
	if len(absent) == 0 {
		return stats, nil
	}
	u.tell(0)
	listed := make([]Catalogued, len(absent))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.inFlight)
	for i, s := range absent {
		g.Go(func() error {
			var err error
			if listed[i], err = u.pack(gctx, s); err != nil {
				return fmt.Errorf("upload pack %s to %s: %w", pack.FileName(s.ContentHash), r.Location(), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return UploadStats{Packs: len(packs), NewPacks: u.newPacks, NewBytes: u.newBytes}, err
	}
	stats.NewPacks, stats.NewBytes = u.newPacks, u.newBytes
	if err := still(ctx); err != nil {
		return stats, err
	}
	return stats, r.publish(ctx, listed)
}

// upload is an Upload that runs.
type upload struct {
	r        *Remote
	progress Progress
	total    int64

	mu       sync.Mutex // guards the rest, and serialises progress
	done     int64
	newPacks int
	newBytes int64
}

func (u *upload) tell(moved int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done += moved
	if u.progress != nil {
		u.progress(u.done, u.total)
	}
}

// pack makes sure that one pack is there.
func (u *upload) pack(ctx context.Context, s PackSource) (Catalogued, error) {
	c, err := u.r.examine(s)
	if err != nil {
		return c, err
	}
	done, err := u.r.request(ctx)
	if err != nil {
		return c, err
	}
	defer done()
	watched := &watchedReader{r: s.Reader, moved: u.tell}
	isNew, err := u.r.ensure(ctx, s, watched)
	if err != nil {
		return c, err
	}
	watched.rest(s.Bytes)
	if isNew {
		u.mu.Lock()
		u.newPacks++
		u.newBytes += s.Bytes
		u.mu.Unlock()
	}
	return c, nil
}

// examine checks that a source is the pack it says it is, every byte, and gives what the catalogue will say.
func (r *Remote) examine(s PackSource) (Catalogued, error) {
	c := Catalogued{ID: s.ID, ContentHash: s.ContentHash, Bytes: s.Bytes, Entries: s.Entries}
	sealed, err := pack.OpenSealed(s.Reader, s.Bytes)
	if err != nil {
		return c, err
	}
	if sealed.KeyID != r.keyID {
		return c, fmt.Errorf("its chunks are named with key %08x, those of the remote with %08x: %w", sealed.KeyID, r.keyID, ErrWrongKey)
	}
	if sealed.ContentHash != s.ContentHash || sealed.ID != s.ID {
		return c, fmt.Errorf("its id is %x and its content hash %s, want %x: %w", sealed.ID, sealed.ContentHash, s.ID, pack.ErrDamaged)
	}
	if err := sealed.CheckContent(); err != nil {
		return c, err
	}
	// The footer's entries, which the content hash has just vouched for, and not what the source says of them.
	if c.Entries, err = sealed.Entries(); err != nil {
		return c, err
	}
	c.PlainBytes, c.Created = sealed.Trailer.PlainBytes, sealed.Created
	return c, c.check()
}

// ensure puts a pack object unless it is there.
func (r *Remote) ensure(ctx context.Context, s PackSource, reader io.ReaderAt) (isNew bool, err error) {
	key := packKey(s.ContentHash)
	if s.Bytes >= statFromBytes {
		switch info, err := r.bucket.Stat(ctx, key); {
		case err == nil && info.Bytes == s.Bytes:
			return false, nil
		case err != nil && !errors.Is(err, bucket.ErrNotFound):
			return false, err
		}
	}
	_, err = r.bucket.Put(ctx, key, reader, s.Bytes, bucket.Condition{Absent: true})
	if !errors.Is(err, bucket.ErrCondition) {
		return err == nil, err
	}
	info, err := r.bucket.Stat(ctx, key)
	if err != nil {
		return false, err
	}
	if info.Bytes == s.Bytes {
		return false, nil
	}
	// Nobody puts anything else under this name: what is there was damaged, and is put right.
	r.log.Error("a pack object has the wrong length and is put again", "key", key, "bytes", info.Bytes, "want", s.Bytes)
	_, err = r.bucket.Put(ctx, key, reader, s.Bytes, bucket.Condition{})
	return err == nil, err
}

// publish puts catalogue objects that name packs which are there, and takes them into the index.
func (r *Remote) publish(ctx context.Context, packs []Catalogued) error {
	for _, part := range splitCatalogue(packs) {
		if _, err := r.putCatalogue(ctx, part); err != nil {
			return fmt.Errorf("name %d packs in the catalogue of %s: %w", len(part), r.Location(), err)
		}
	}
	return nil
}

func (r *Remote) putCatalogue(ctx context.Context, packs []Catalogued) (cas.Hash, error) {
	p, hash, err := EncodeCatalogue(r.keyID, packs)
	if err != nil {
		return hash, err
	}
	done, err := r.request(ctx)
	if err != nil {
		return hash, err
	}
	defer done()
	key := catalogueKey(hash)
	// Without a condition: under this name there is this content, or a damaged one that this puts right.
	if _, err := r.bucket.Put(ctx, key, bytes.NewReader(p), int64(len(p)), bucket.Condition{}); err != nil {
		return hash, err
	}
	r.index.add(&catalogue{key: key, hash: hash, bytes: int64(len(p)), round: r.rounds.now()}, packs)
	r.cache.storeCatalogue(key, p)
	return hash, nil
}

// splitCatalogue cuts packs into parts of at most some targetCatalogueBytes.
func splitCatalogue(packs []Catalogued) [][]Catalogued {
	var parts [][]Catalogued
	for first := 0; first < len(packs); {
		last, entries := first, int64(0)
		for ; last < len(packs); last++ {
			more := entries + int64(len(packs[last].Entries))
			if last > first && catalogueBytes(int64(last-first+1), more) > targetCatalogueBytes {
				break
			}
			entries = more
		}
		parts = append(parts, packs[first:last])
		first = last
	}
	return parts
}

// watchedReader tells how far a source was read. What is read again, by a retry, isn't told again.
type watchedReader struct {
	r     io.ReaderAt
	moved func(bytes int64)

	mu  sync.Mutex // guards the rest
	end int64
}

func (w *watchedReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := w.r.ReadAt(p, offset)
	w.rest(offset + int64(n))
	return n, err
}

// rest tells what is missing up to end.
func (w *watchedReader) rest(end int64) {
	w.mu.Lock()
	moved := end - w.end
	w.end = max(w.end, end)
	w.mu.Unlock()
	if moved > 0 {
		w.moved(moved)
	}
}
