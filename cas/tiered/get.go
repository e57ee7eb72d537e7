package tiered

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
)

// Get reads one chunk near, or else far.
func (s *Store) Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error) {
	plain, err := s.Near.Get(ctx, r, dst)
	fars := s.fars.Load()
	if err == nil || fars == nil || !mayBeFar(err) {
		return plain, err
	}
	m := miss{nearErr: err}
	for _, f := range *fars {
		plain, err := f.Get(ctx, r, dst)
		if err == nil {
			s.served(f, r.Hash, &m, len(plain)-len(dst))
			return plain, nil
		}
		if ctx.Err() != nil {
			return dst, ctx.Err()
		}
		m.farFailed(f.name, err)
	}
	return dst, s.lost(&m)
}

// GetMany reads near what is there, and then all the others together far.
func (s *Store) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	fars := s.fars.Load()
	if fars == nil {
		return s.Near.GetMany(ctx, refs, each)
	}
	var misses []miss
	err := s.Near.GetMany(ctx, refs, func(i int, data []byte, err error) error {
		if err != nil && mayBeFar(err) {
			misses = append(misses, miss{ref: i, nearErr: err})
			return nil
		}
		return each(i, data, err)
	})
	for _, f := range *fars {
		if err != nil || len(misses) == 0 {
			return err
		}
		misses, err = s.getFar(ctx, f, refs, misses, each)
	}
	for i := range misses {
		if err != nil {
			return err
		}
		err = each(misses[i].ref, nil, s.lost(&misses[i]))
	}
	return err
}

// getFar asks one far for what is missing, and gives what still is.
func (s *Store) getFar(ctx context.Context, f *attached, refs []cas.Ref, misses []miss, each func(i int, data []byte, err error) error) ([]miss, error) {
	wanted := make([]cas.Ref, len(misses))
	for i := range misses {
		wanted[i] = refs[misses[i].ref]
	}
	var left []miss
	err := f.GetMany(ctx, wanted, func(i int, data []byte, err error) error {
		m := &misses[i]
		if err != nil {
			m.farFailed(f.name, err)
			left = append(left, *m)
			return nil
		}
		s.served(f, wanted[i].Hash, m, len(data))
		return each(m.ref, data, nil)
	})
	return left, err
}

// mayBeFar tells whether near's refusal means that a far is worth asking: an error of the medium isn't.
func mayBeFar(err error) bool {
	return errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt)
}

// miss is a chunk that near couldn't serve.
type miss struct {
	ref     int
	nearErr error
	corrupt error // a far's: it has it, and it is damaged
	outage  error // a far's that couldn't tell
}

func (m *miss) farFailed(name string, err error) {
	err = fmt.Errorf("far tier %s: %w", name, err)
	switch {
	case !permanent(err):
		m.outage = fmt.Errorf("%w: %w", cas.ErrUnavailable, err)
	case errors.Is(err, cas.ErrCorrupt):
		m.corrupt = err
	}
}

// served counts a chunk that came from far, and tells of one that is damaged near.
func (s *Store) served(f *attached, h cas.Hash, m *miss, bytes int) {
	s.counters.farChunks.Add(1)
	s.counters.farBytes.Add(int64(bytes))
	if errors.Is(m.nearErr, cas.ErrCorrupt) {
		s.counters.damagedNear.Add(1)
		s.onEvent(Event{Far: f.name, Chunk: h, Near: m.nearErr})
	}
}

// lost gives the error of a chunk that nobody served: of who couldn't tell, or of who has it damaged, near before far, or
// that it isn't there.
func (s *Store) lost(m *miss) error {
	switch {
	case m.outage != nil:
		s.counters.outages.Add(1)
		return m.outage
	case m.corrupt != nil && !errors.Is(m.nearErr, cas.ErrCorrupt):
		return m.corrupt
	}
	return m.nearErr
}

// permanent tells whether asking again is of no use.
func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}
