package memtrack

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Backed is a machine's memory that lies in another process as one shared mapping of a file, and is read from the file.
// That is what a booted QEMU has. Unlike reading through the process, reading a page that was never touched allocates
// nothing. Safe for concurrent use.
type Backed struct {
	span   Span
	file   *os.File
	offset uint64 // of page 0 in the file
}

// OpenBacked opens the file behind a span. ErrUnsupported when the span is something else than one shared mapping.
func OpenBacked(s Span) (*Backed, error) {
	within, err := s.Within()
	if err != nil {
		return nil, err
	}
	first, end := within[0], within[0].End
	for _, m := range within[1:] {
		if !m.Continues(first, end) {
			return nil, fmt.Errorf("memory of process %d at %x is not one mapping: %w", s.PID, m.Start, ErrUnsupported)
		}
		end = m.End
	}
	if !first.Shared || first.Inode == 0 || first.Start > s.Start || end < s.End {
		return nil, fmt.Errorf("memory of process %d at %x is not shared: %w", s.PID, s.Start, ErrUnsupported)
	}
	f, err := OpenBehind(s.PID, first, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Backed{span: s, file: f, offset: first.Offset + s.Start - first.Start}, nil
}

// Span says where the memory is in the process.
func (b *Backed) Span() Span { return b.span }

func (b *Backed) Pages() uint64 { return b.span.Pages() }

// Close closes the file.
func (b *Backed) Close() error { return b.file.Close() }

// View copies pages, large numbers of them on several cores.
func (b *Backed) View(ctx context.Context, pages []uint64, dst []byte) error {
	if err := checkView(b, pages, dst); err != nil {
		return err
	}
	return inParts(pages, dst, func(pages []uint64, dst []byte) error { return b.view(ctx, pages, dst) })
}

// view copies pages on this thread, neighbours at once.
func (b *Backed) view(ctx context.Context, pages []uint64, dst []byte) error {
	for len(pages) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		run := 1
		for run < len(pages) && run < maxViewBytes/PageBytes && pages[run] == pages[run-1]+1 {
			run++
		}
		n, err := readFull(int(b.file.Fd()), dst[:run*PageBytes], int64(b.offset+pages[0]*PageBytes))
		if err != nil {
			return fmt.Errorf("read guest page %d of process %d from its file: %w", pages[min(n/PageBytes, run-1)], b.span.PID, err)
		}
		pages, dst = pages[run:], dst[run*PageBytes:]
	}
	return nil
}

func readFull(fd int, dst []byte, at int64) (done int, err error) {
	for done < len(dst) {
		n, err := unix.Pread(fd, dst[done:], at+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.ErrUnexpectedEOF
		}
		done += n
	}
	return done, nil
}
