package memtest

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"flash/memtrack"
)

// Source is a snapshot's memory that can be made to fail and counts what it is asked for. Safe for concurrent use.
type Source struct {
	pages [][]byte // nil: a zero page
	Reads atomic.Int64

	mu   sync.Mutex // guards the rest
	fail func(page uint64) error
}

// NewSource makes memory of n pages of which about zeroShare are zero, in runs; the others are all different.
func NewSource(n int, zeroShare float64, seed uint64) *Source {
	s := &Source{pages: make([][]byte, n)}
	r := rand.New(rand.NewPCG(seed, 1))
	zero := false
	for i := range s.pages {
		if i%16 == 0 {
			zero = r.Float64() < zeroShare
		}
		if zero {
			continue
		}
		p := make([]byte, memtrack.PageBytes)
		for at := 0; at < len(p); at += 8 {
			binary.LittleEndian.PutUint64(p[at:], r.Uint64()|1)
		}
		s.pages[i] = p
	}
	return s
}

// Fail makes every later read of a page return what f says; nil: reads work.
func (s *Source) Fail(f func(page uint64) error) {
	s.mu.Lock()
	s.fail = f
	s.mu.Unlock()
}

// Page gives what a page holds.
func (s *Source) Page(page uint64) []byte {
	if s.pages[page] == nil {
		return make([]byte, memtrack.PageBytes)
	}
	return s.pages[page]
}

func (s *Source) Slots() uint64 { return uint64(len(s.pages)) }

func (s *Source) IsZero(_ context.Context, slot uint64) (bool, error) {
	return s.pages[slot] == nil, nil
}

func (s *Source) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	s.Reads.Add(1)
	if err := s.failure(slot); err != nil {
		return err
	}
	copy(dst, s.Page(slot))
	return nil
}

func (s *Source) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	for _, slot := range slots {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.Reads.Add(1)
		if err := s.failure(slot); err != nil {
			return err
		}
		if err := each(slot, s.pages[slot]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) failure(slot uint64) error {
	s.mu.Lock()
	f := s.fail
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(slot)
}
