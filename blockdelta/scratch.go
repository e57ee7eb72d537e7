package blockdelta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// backing is what a scratch file needs of a file; tests put a failing one in its place.
type backing interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// scratch is a file of equal slots that vanishes with the process.
type scratch struct {
	file  backing
	punch func(off, length int64) // gives room back to the file system; advice
	name  string                  // "": already unlinked

	mu   sync.Mutex // guards the rest; never held across reads and writes of the file
	free []place    // given back; taken from the end
	next place      // first slot never used
	used int        // slots in use
}

func openScratch(dir string) (*scratch, error) {
	f, err := os.CreateTemp(dir, "overlay-*.scratch")
	if err != nil {
		return nil, fmt.Errorf("scratch file: %w", err)
	}
	s := &scratch{file: f, punch: puncher(f), next: firstSlot}
	// Where an open file can't be unlinked, close does it.
	if os.Remove(f.Name()) != nil {
		s.name = f.Name()
	}
	return s, nil
}

// alloc takes n slots, neighbours where it can.
func (s *scratch) alloc(n int) ([]place, error) {
	if n == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if uint64(s.used)+uint64(n) > maxSlots {
		return nil, fmt.Errorf("scratch file: no room for %d more of at most %d blocks", n, maxSlots)
	}
	slots := make([]place, 0, n)
	reused := min(n, len(s.free))
	for i := range reused {
		slots = append(slots, s.free[len(s.free)-1-i])
	}
	s.free = s.free[:len(s.free)-reused]
	for len(slots) < n {
		slots = append(slots, s.next)
		s.next++
	}
	s.used += n
	return slots, nil
}

// release gives slots back that nobody reads or writes any more. slots is sorted in place.
func (s *scratch) release(slots []place) {
	if len(slots) == 0 {
		return
	}
	slices.Sort(slots)
	for i := 0; i < len(slots); {
		j := i + 1
		for j < len(slots) && slots[j] == slots[i]+place(j-i) {
			j++
		}
		s.punch(slots[i].offset(), int64(j-i)*BlockBytes)
		i = j
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= len(slots)
	slices.Reverse(slots) // so that alloc, which takes from the end, gives neighbours in ascending order
	s.free = append(s.free, slots...)
	// With nothing in use nobody reads or writes the file: start again at its front. If that fails the slots are free
	// all the same.
	if s.used == 0 && s.file.Truncate(0) == nil {
		s.free, s.next = nil, firstSlot
	}
}

func (s *scratch) usedBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.used) * BlockBytes
}

func (s *scratch) readAt(p []byte, off int64) error {
	if n, err := s.file.ReadAt(p, off); n < len(p) {
		return fmt.Errorf("scratch file at offset %d: %d of %d bytes: %w", off, n, len(p), err)
	}
	return nil
}

func (s *scratch) writeAt(p []byte, off int64) error {
	if n, err := s.file.WriteAt(p, off); err != nil {
		return fmt.Errorf("scratch file at offset %d: %d of %d bytes: %w", off, n, len(p), err)
	}
	return nil
}

func (s *scratch) close() error {
	err := s.file.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}
