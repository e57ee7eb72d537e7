package local

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
	"flash/cas/pack"
)

// Get reads one chunk: at the hint, or where the index says, or at any other place that has it.
func (s *Store) Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error) {
	if err := s.gate.enter(); err != nil {
		return dst, err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return dst, err
	}
	if !r.Hint.IsZero() {
		if p := s.packs.byID(r.Hint.Pack); p != nil {
			plain, err := s.getAt(location{p, r.Hint.Offset, r.Hint.Bytes}, r.Hash, dst)
			if err == nil {
				s.counters.hintHits.Add(1)
				return plain, nil
			}
		}
		s.counters.hintMisses.Add(1)
	}
	return s.getByIndex(r.Hash, dst)
}

// getByIndex reads a chunk without a hint.
func (s *Store) getByIndex(h cas.Hash, dst []byte) ([]byte, error) {
	var failed error
	for range 4 { // a sweep may move the chunk between look-up and read
		var places [8]location
		found, err := s.index.locate(places[:0], h)
		failed = err
		moved := false
		for _, l := range found {
			plain, err := s.getAt(l, h, dst)
			switch {
			case err == nil:
				s.counters.indexHits.Add(1)
				return plain, nil
			case errors.Is(err, errGone):
				moved = true
			case errors.Is(err, errOtherChunk): // the index was ahead of the packs
			default:
				failed = s.damaged(l, h, err)
			}
		}
		if !moved && (errors.Is(failed, cas.ErrCorrupt) || !s.checkRuns()) {
			break
		}
	}
	if failed != nil {
		return dst, failed
	}
	s.counters.notFound.Add(1)
	return dst, fmt.Errorf("chunk %s: %w", h, cas.ErrNotFound)
}

// errOtherChunk: there is a good record at the place, of another chunk.
var errOtherChunk = errors.New("another chunk is there")

// getAt reads the record at l and appends its plain bytes, if it is h's.
func (s *Store) getAt(l location, h cas.Hash, dst []byte) ([]byte, error) {
	pooled := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(pooled)
	record, err := s.readRecord(l, (*pooled)[:0])
	if err != nil {
		return dst, err
	}
	*pooled = record
	return s.decode(record, h, dst)
}

// decode appends the plain bytes of record, if it is h's.
func (s *Store) decode(record []byte, h cas.Hash, dst []byte) ([]byte, error) {
	d := s.decoders.Get().(*pack.Decoder)
	defer s.decoders.Put(d)
	plain, r, err := d.AppendPlain(dst, record)
	if err != nil {
		return dst, err
	}
	if r.Hash != h {
		return dst, errOtherChunk
	}
	return plain, nil
}

// damaged gives the error for a record that could not be read, and remembers it, so that the chunk is stored again when
// it is put again.
func (s *Store) damaged(l location, h cas.Hash, cause error) error {
	if !errors.Is(cause, pack.ErrDamaged) {
		return fmt.Errorf("chunk %s in pack %s: %w", h, l.pack.name(), cause)
	}
	corrupt := &cas.CorruptError{Hash: h, Pack: l.pack.name(), Offset: int64(l.offset), Reason: cause.Error()}
	s.badMu.Lock()
	_, known := s.bad[badPlace{l.pack.id, l.offset}]
	s.bad[badPlace{l.pack.id, l.offset}] = struct{}{}
	s.badCount.Store(int64(len(s.bad)))
	s.badMu.Unlock()
	if !known {
		s.log.Error("a chunk is corrupt", "err", corrupt)
	}
	return corrupt
}

func (s *Store) isBad(l location) bool {
	if s.badCount.Load() == 0 {
		return false
	}
	s.badMu.Lock()
	defer s.badMu.Unlock()
	_, bad := s.bad[badPlace{l.pack.id, l.offset}]
	return bad
}

// Has tells which chunks are present and may be referred to.
func (s *Store) Has(ctx context.Context, hs []cas.Hash) ([]bool, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.sweepMu.RLock()
	defer s.sweepMu.RUnlock()
	present := make([]bool, len(hs))
	var places [8]location
	for i, h := range hs {
		if _, present[i] = s.place(places[:0], h); present[i] {
			s.touch(h)
		}
	}
	return present, nil
}
