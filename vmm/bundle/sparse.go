package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"
)

// slotBytes is the store's: an image is made of slots of this size.
const slotBytes = 4096

// sparseFile is a file as a delta from nothing: the slots that aren't zero. It satisfies store.Changes.
type sparseFile struct {
	file  *os.File
	bytes uint64
	runs  []slotRun // ascending, not touching
	slots uint64    // in all runs
	read  atomic.Uint64
}

// slotRun is some slots in a row.
type slotRun struct{ first, count uint64 }

// openSparse finds the slots of a file that aren't zero, without reading its holes.
func openSparse(ctx context.Context, path string) (*sparseFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &sparseFile{file: f}
	if err := s.scan(ctx); err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Close ends the use of the file.
func (s *sparseFile) Close() error { return s.file.Close() }

func (s *sparseFile) scan(ctx context.Context) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	end := info.Size()
	s.bytes = uint64(end)
	buf := make([]byte, 256*slotBytes)
	for at := int64(0); at < end; {
		from, to, err := nextData(s.file, at, end)
		if err != nil {
			return err
		}
		from = from / slotBytes * slotBytes // holes may end inside a slot
		for at = max(at, from); at < to; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := s.file.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
			for i := 0; i < n; i += slotBytes {
				if !isZero(buf[i:min(i+slotBytes, n)]) {
					s.add(uint64(at+int64(i)) / slotBytes)
				}
			}
			at += int64(n)
		}
		at = min((at+slotBytes-1)/slotBytes*slotBytes, end)
	}
	return nil
}

func (s *sparseFile) add(slot uint64) {
	s.slots++
	if n := len(s.runs); n > 0 && s.runs[n-1].first+s.runs[n-1].count == slot {
		s.runs[n-1].count++
		return
	}
	s.runs = append(s.runs, slotRun{slot, 1})
}

// Slots yields the slots that aren't zero.
func (s *sparseFile) Slots() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, r := range s.runs {
			for slot := r.first; slot < r.first+r.count; slot++ {
				if !yield(slot) {
					return
				}
			}
		}
	}
}

// ReadSlot fills dst; the part of the last slot that is beyond the file's end is zero.
func (s *sparseFile) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := s.file.ReadAt(dst, int64(slot)*slotBytes)
	if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
		return fmt.Errorf("slot %d: %w", slot, err)
	}
	clear(dst[n:])
	s.read.Add(1)
	return nil
}

func isZero(p []byte) bool {
	for len(p) >= 8 {
		if p[0]|p[1]|p[2]|p[3]|p[4]|p[5]|p[6]|p[7] != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
