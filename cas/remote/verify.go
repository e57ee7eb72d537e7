package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

// wholePackBytes: a pack up to this long is verified in memory, read once; a longer one is read twice, in pieces.
const wholePackBytes = 64 << 20

// verifyAtOnce bounds how many packs are in memory.
const verifyAtOnce = 3

// Verify asks for every pack object whether it is there and as long as the catalogue says, and reads a fraction of the
// packs, chosen at random, or all (1), and checks every byte of them: checksums, names, the footer, the content hash, and
// that the catalogue finds every record. Nothing cached is asked. report is called for each finding, from one goroutine at
// a time. The error is about the check itself: the bucket doesn't answer, or a catalogue is damaged.
func (r *Remote) Verify(ctx context.Context, fraction float64, report func(cas.Damage)) (cas.VerifyStats, error) {
	if !(fraction > 0 && fraction <= 1) {
		return cas.VerifyStats{}, fmt.Errorf("verify %v of the packs: want a fraction above 0 and at most 1", fraction)
	}
	if err := r.Refresh(ctx); err != nil {
		return cas.VerifyStats{}, err
	}
	v := verifier{r: r, report: report, absent: map[*object]bool{}}
	all := r.index.all()
	if err := v.each(ctx, all, r.inFlight, v.isThere); err != nil {
		return v.stats, fmt.Errorf("verify the packs of %s: %w", r.Location(), err)
	}
	if err := v.each(ctx, sample(all, fraction), verifyAtOnce, v.read); err != nil {
		return v.stats, fmt.Errorf("verify the packs of %s: %w", r.Location(), err)
	}
	return v.stats, nil
}

// sample chooses packs until they hold the fraction of all bytes; at least one, if there is one.
func sample(objects []*object, fraction float64) []*object {
	total, chosen := int64(0), int64(0)
	for _, o := range objects {
		total += o.bytes
	}
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for i, o := range objects {
		if float64(chosen) >= fraction*float64(total) {
			return objects[:i]
		}
		chosen += o.bytes
	}
	return objects
}

// verifier is a Verify that runs.
type verifier struct {
	r *Remote

	mu     sync.Mutex // serialises report, and guards the rest
	report func(cas.Damage)
	stats  cas.VerifyStats
	absent map[*object]bool // reported as missing: not read
}

func (v *verifier) found(o *object, h cas.Hash, offset int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.Damages++
	v.report(cas.Damage{Pack: o.name(), Hash: h, Offset: offset, Err: err})
}

// each calls check for the objects, some at once. What is wrong with a pack that a collection removes meanwhile is nothing.
func (v *verifier) each(ctx context.Context, objects []*object, atOnce int, check func(ctx context.Context, o *object) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range objects {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return check(gctx, o) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (v *verifier) isThere(ctx context.Context, o *object) error {
	done, err := v.r.request(ctx)
	if err != nil {
		return err
	}
	info, err := v.r.bucket.Stat(ctx, o.key())
	done()
	switch {
	case err == nil && info.Bytes != o.bytes:
		err = fmt.Errorf("the object has %d bytes, want %d: %w", info.Bytes, o.bytes, pack.ErrDamaged)
	case err == nil:
		return nil
	case errors.Is(err, bucket.ErrNotFound):
		var gone bool
		if gone, err = v.gone(ctx, o); err != nil || gone {
			return err
		}
		err = fmt.Errorf("the catalogue names it, and the bucket hasn't it: %w", bucket.ErrNotFound)
	case !isDamage(err):
		return err
	}
	v.mu.Lock()
	v.absent[o] = true
	v.mu.Unlock()
	v.found(o, cas.Hash{}, 0, err)
	return nil
}

// gone tells whether a pack isn't in the catalogue any more.
func (v *verifier) gone(ctx context.Context, o *object) (bool, error) {
	if err := v.r.Refresh(ctx); err != nil {
		return false, err
	}
	return !v.r.index.named(o.hash), nil
}

func (v *verifier) read(ctx context.Context, o *object) error {
	v.mu.Lock()
	absent := v.absent[o]
	v.mu.Unlock()
	if absent {
		return nil
	}
	err := v.bytes(ctx, o)
	switch {
	case err == nil:
		v.mu.Lock()
		v.stats.Packs++
		v.mu.Unlock()
		return nil
	case errors.Is(err, bucket.ErrNotFound):
		if gone, err := v.gone(ctx, o); err != nil || gone {
			return err
		}
	case !isDamage(err) && !errors.Is(err, pack.ErrUnsupported):
		return err
	}
	v.found(o, cas.Hash{}, 0, err)
	return nil
}

// bytes checks every byte of a pack. Its error is about the pack, or the bucket's.
func (v *verifier) bytes(ctx context.Context, o *object) error {
	var reader io.ReaderAt = &objectReader{ctx, v.r, o.key(), o.bytes}
	if o.bytes <= wholePackBytes {
		whole, err := v.r.download(ctx, o)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(whole)
	}
	sealed, err := pack.OpenSealed(reader, o.bytes)
	if err != nil {
		return err
	}
	damaged := false
	d := v.r.decoders.Get().(*pack.Decoder)
	defer v.r.decoders.Put(d)
	err = sealed.Verify(d, func(e pack.Entry, err error) {
		damaged = true
		v.found(o, e.Hash, int64(e.Offset), err)
	})
	if err != nil && !(damaged && errors.Is(err, pack.ErrDamaged)) {
		return err
	}
	if sealed.ContentHash != o.hash || sealed.ID != o.id {
		return fmt.Errorf("it is pack %x with the content hash %s: %w", sealed.ID, sealed.ContentHash, pack.ErrDamaged)
	}
	entries, err := sealed.Entries()
	if err != nil {
		return err
	}
	var places [8]place
	for _, e := range entries {
		if !slices.Contains(v.r.index.locate(places[:0], e.Hash), place{o, e.Offset, e.Bytes}) && v.r.index.named(o.hash) {
			v.found(o, e.Hash, int64(e.Offset), fmt.Errorf("the catalogue doesn't find it: %w", pack.ErrDamaged))
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.Records += int64(len(entries))
	v.stats.Bytes += o.bytes
	return nil
}

// download reads a whole object.
func (r *Remote) download(ctx context.Context, o *object) ([]byte, error) {
	whole := make([]byte, o.bytes)
	return whole, r.getParallel(ctx, o.key(), whole, 0)
}
