package remote

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/pack"
)

// OpenPack gives a pack object as a stream, and its length: for who takes the pack whole. It is read with parallel requests,
// past the cache, and checked by nobody: whoever takes it compares the content hash. ErrNotFound.
func (r *Remote) OpenPack(ctx context.Context, contentHash cas.Hash) (io.Reader, int64, error) {
	r.index.mu.RLock()
	o := r.index.byHash[contentHash]
	r.index.mu.RUnlock()
	if o == nil {
		return nil, 0, fmt.Errorf("pack %s in %s: %w", pack.FileName(contentHash), r.Location(), cas.ErrNotFound)
	}
	return &stream{ctx: ctx, r: r, o: o}, o.bytes, nil
}

// PackEntries lists a pack's records, ascending by hash, from its footer. ErrNotFound.
func (r *Remote) PackEntries(ctx context.Context, id cas.PackID) ([]pack.Entry, error) {
	called := r.index.called(id)
	if len(called) == 0 {
		return nil, fmt.Errorf("pack %x in %s: %w", id, r.Location(), cas.ErrNotFound)
	}
	sealed, err := r.openObject(ctx, called[len(called)-1])
	if err != nil {
		return nil, err
	}
	return sealed.Entries()
}

// openObject reads a pack object's header and trailer, and compares them with the catalogue.
func (r *Remote) openObject(ctx context.Context, o *object) (*pack.Sealed, error) {
	sealed, err := pack.OpenSealed(&objectReader{ctx, r, o.key(), o.bytes}, o.bytes)
	if err == nil && (sealed.ContentHash != o.hash || sealed.ID != o.id || sealed.Trailer.Entries != o.entries) {
		err = fmt.Errorf("its id is %x, its content hash %s, and it has %d entries; the catalogue says otherwise: %w",
			sealed.ID, sealed.ContentHash, sealed.Trailer.Entries, pack.ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("pack %s in %s: %w", o.name(), r.Location(), err)
	}
	return sealed, nil
}

// objectReader reads a pack object, past the cache.
type objectReader struct {
	ctx   context.Context
	r     *Remote
	key   string
	bytes int64
}

func (a *objectReader) ReadAt(p []byte, offset int64) (int, error) {
	whole := p
	if offset < 0 || offset > a.bytes {
		return 0, io.EOF
	}
	if left := a.bytes - offset; int64(len(p)) > left {
		p = p[:left]
	}
	if err := a.r.getRange(a.ctx, a.key, p, offset); err != nil {
		return 0, err
	}
	if len(p) < len(whole) {
		return len(p), io.EOF
	}
	return len(p), nil
}

// getRange is one ranged request.
func (r *Remote) getRange(ctx context.Context, key string, dst []byte, offset int64) error {
	if len(dst) == 0 {
		return nil
	}
	done, err := r.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	r.counters.rangedGets.Add(1)
	if err := r.bucket.GetRange(ctx, key, dst, offset); err != nil {
		return err
	}
	r.counters.fetchedBytes.Add(int64(len(dst)))
	return nil
}

// getParallel fills dst with requests of a span each.
func (r *Remote) getParallel(ctx context.Context, key string, dst []byte, offset int64) error {
	g, gctx := errgroup.WithContext(ctx)
	for at := 0; at < len(dst); at += spanWindows * WindowBytes {
		part := dst[at:min(at+spanWindows*WindowBytes, len(dst))]
		g.Go(func() error { return r.getRange(gctx, key, part, offset+int64(at)) })
	}
	return g.Wait()
}

// streamBytes is what a stream has in memory: four requests.
const streamBytes = 4 * spanWindows * WindowBytes

// stream reads a pack object from front to back.
type stream struct {
	ctx  context.Context
	r    *Remote
	o    *object
	at   int64  // behind left
	left []byte // not given out yet
	buf  []byte
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		n := min(streamBytes, s.o.bytes-s.at)
		if n == 0 {
			return 0, io.EOF
		}
		if s.buf == nil {
			s.buf = make([]byte, n)
		}
		if err := s.r.getParallel(s.ctx, s.o.key(), s.buf[:n], s.at); err != nil {
			return 0, fmt.Errorf("pack %s in %s: %w", s.o.name(), s.r.Location(), err)
		}
		s.left, s.at = s.buf[:n], s.at+n
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}
