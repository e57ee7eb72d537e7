package remote

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

var (
	// errBadWindow: a cached window is shorter than it was, or can't be read.
	errBadWindow = fmt.Errorf("a cached window can't be read: %w", pack.ErrDamaged)
	// errOtherChunk: there is a good record at the place, of another chunk.
	errOtherChunk = errors.New("another chunk is there")
)

// Get reads one chunk, through the cache, with the neighbours in its window. A miss refreshes the catalogue once.
// cas.ErrNotFound, *cas.CorruptError, and bucket.ErrUnavailable, after which asking again may help.
func (r *Remote) Get(ctx context.Context, ref cas.Ref, dst []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	round := r.rounds.now()
	if p, ok := r.index.hinted(ref.Hint); ok {
		plain, err := r.readAt(ctx, p, ref.Hash, dst)
		if err == nil || !elsewhere(err) {
			return plain, r.explain(ref.Hash, p, err)
		}
	}
	return r.getByIndex(ctx, ref.Hash, dst, round)
}

// elsewhere tells whether a read failed in a way that another place may do better: the pack is gone, the bytes are bad, or
// they are another chunk's. Else the bucket didn't answer, or the caller has gone.
func elsewhere(err error) bool {
	return errors.Is(err, bucket.ErrNotFound) || errors.Is(err, errOtherChunk) || isDamage(err)
}

func isDamage(err error) bool {
	return errors.Is(err, pack.ErrDamaged) || errors.Is(err, bucket.ErrShort) || errors.Is(err, bucket.ErrIntegrity)
}

// explain says which chunk of which pack of which bucket an error is about.
func (r *Remote) explain(h cas.Hash, p place, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("chunk %s in pack %s of %s: %w", h, p.object.name(), r.Location(), err)
}

// getByIndex reads a chunk wherever the catalogue says it is. Before it says that the chunk is lost it refreshes the
// catalogue, unless that happened since round.
func (r *Remote) getByIndex(ctx context.Context, h cas.Hash, dst []byte, round uint64) ([]byte, error) {
	for refreshed := false; ; refreshed = true {
		var places [8]place
		var corrupt error
		for _, p := range r.index.locate(places[:0], h) {
			plain, err := r.readSurely(ctx, p, h, dst)
			switch {
			case err == nil:
				return plain, nil
			case !elsewhere(err):
				return dst, r.explain(h, p, err)
			case isDamage(err):
				corrupt = &cas.CorruptError{Hash: h, Pack: r.Location() + "/" + p.object.key(), Offset: int64(p.offset), Reason: err.Error()}
			}
		}
		if refreshed && corrupt != nil {
			r.log.Error("a chunk is corrupt", "err", corrupt)
			return dst, corrupt
		}
		if refreshed {
			return dst, fmt.Errorf("chunk %s in %s: %w", h, r.Location(), cas.ErrNotFound)
		}
		if err := r.refreshSince(ctx, round); err != nil {
			return dst, fmt.Errorf("chunk %s: %w", h, err)
		}
	}
}

// readSurely reads a record, and when it is bad drops the windows it is in and fetches them once more.
func (r *Remote) readSurely(ctx context.Context, p place, h cas.Hash, dst []byte) ([]byte, error) {
	plain, err := r.readAt(ctx, p, h, dst)
	if err == nil || !isDamage(err) {
		return plain, err
	}
	r.counters.badOnes.Add(1)
	first, last := windowsOf(p)
	for n := first; n <= last; n++ {
		r.cache.drop(windowKey{p.object.hash, n})
	}
	return r.readAt(ctx, p, h, dst)
}

// readAt reads the record at p and appends its plain bytes to dst, if it is h's.
func (r *Remote) readAt(ctx context.Context, p place, h cas.Hash, dst []byte) ([]byte, error) {
	first, last := windowsOf(p)
	s, err := r.openSpan(ctx, p.object, first, last)
	if err != nil {
		return dst, err
	}
	defer s.close()
	plain, _, err := s.chunk(p, h, dst, nil)
	return plain, err
}

// chunk decodes the record at p, which lies in the span, and appends its plain bytes to dst, if it is h's. buf is room for
// the record, and comes back, perhaps larger.
func (s *span) chunk(p place, h cas.Hash, dst, buf []byte) (plain, room []byte, err error) {
	record, err := s.record(p, buf)
	if err != nil {
		return dst, buf, err
	}
	d := s.r.decoders.Get().(*pack.Decoder)
	defer s.r.decoders.Put(d)
	plain, rec, err := d.AppendPlain(dst, record)
	if err == nil && rec.Hash != h {
		err = errOtherChunk
	}
	if err != nil {
		return dst, buf, err
	}
	return plain, buf, nil
}
