package local

import (
	"fmt"

	"flash/cas"
)

// checkSpace refuses to write bytes when less than the reserve would stay free. It is one system call, for a batch.
func (s *Store) checkSpace(bytes int64) error {
	if s.reserve < 0 {
		return nil
	}
	free, err := s.fs.FreeBytes(s.dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	if free-bytes < s.reserve {
		return fmt.Errorf("%d MiB are free at %s, %d MiB stay in reserve: %w", free>>20, s.dir, s.reserve>>20, cas.ErrNoSpace)
	}
	return nil
}

// noSpace makes cas.ErrNoSpace of the system's error, and keeps that for people.
func noSpace(err error) error { return fmt.Errorf("%w (%v)", cas.ErrNoSpace, err) }
