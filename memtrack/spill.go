package memtrack

import (
	"fmt"
	"os"
)

// heldArenas bounds what all open deltas together hold in memory: 256 MiB. What is more, as in the first cut of a large
// guest, goes to a file. A cut that fits into one arena is always held.
const heldArenas = 4

// roomy is memory that says in which folder copies of its pages may lie that don't fit into ours; "" or without that
// method: none, and all is held.
type roomy interface{ Scratch() string }

func scratchOf(m Memory) string {
	if r, ok := m.(roomy); ok {
		return r.Scratch()
	}
	return ""
}

// spill is the file of a delta's pages that don't fit into memory. It is gone from its folder as soon as it is open, where
// the system allows that, and ends with the delta; a name that is left ends in ".scratch".
type spill struct {
	file  *os.File
	left  bool // its name is still there
	pages int
}

func newSpill(dir string) (*spill, error) {
	f, err := os.CreateTemp(dir, "cut-*.scratch")
	if err != nil {
		return nil, fmt.Errorf("room for changed pages: %w", err)
	}
	return &spill{file: f, left: os.Remove(f.Name()) != nil}, nil
}

// append adds whole pages.
func (s *spill) append(pages []byte) error {
	if _, err := s.file.WriteAt(pages, int64(s.pages)*PageBytes); err != nil {
		return fmt.Errorf("room for changed pages: %w", err)
	}
	s.pages += len(pages) / PageBytes
	return nil
}

func (s *spill) read(page int, dst []byte) error {
	if _, err := s.file.ReadAt(dst, int64(page)*PageBytes); err != nil {
		return fmt.Errorf("read a changed page back: %w", err)
	}
	return nil
}

func (s *spill) close() {
	_ = s.file.Close() // nothing is wanted of it any more
	if s.left {
		_ = os.Remove(s.file.Name()) // what is left is swept
	}
}
