//go:build linux

package pagemap

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

const ioctlPagemapScan = 0xc0606610

// Flags and categories of PAGEMAP_SCAN.
const (
	flagWPMatching   = 1 << 0
	flagCheckWPAsync = 1 << 1

	pageIsWritten = 1 << 1
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsPFNZero = 1 << 5
)

type scanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
	inverted, mask, anyOf, ret                              uint64
}

type region struct{ start, end, categories uint64 }

// The sizes are part of the ioctl's number; a difference doesn't compile.
var (
	_ [96 - unsafe.Sizeof(scanArg{})]byte
	_ [24 - unsafe.Sizeof(region{})]byte
)

// filter says which pages a scan reports.
type filter struct{ flags, inverted, mask, anyOf uint64 }

// scanner reads the page table of one process. Not safe for concurrent use.
type scanner struct {
	span    memtrack.Span
	pagemap int // descriptor of /proc/PID/pagemap
	regions []region
}

func openScanner(s memtrack.Span) (*scanner, error) {
	path := fmt.Sprintf("/proc/%d/pagemap", s.PID)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &scanner{span: s, pagemap: fd, regions: make([]region, 4096)}, nil
}

// scan gives the pages that pass f, ascending. After an error of a scan that protects, nobody knows which pages it took.
func (s *scanner) scan(f filter) (pages []uint64, err error) {
	var pin runtime.Pinner
	pin.Pin(&s.regions[0])
	defer pin.Unpin()
	for at := s.span.Start; at < s.span.End; {
		arg := scanArg{size: 96, flags: f.flags, start: at, end: s.span.End,
			// SAFETY: regions is on the heap and pinned until scan returns; the kernel writes at most vecLen of them.
			vec: uint64(uintptr(unsafe.Pointer(&s.regions[0]))), vecLen: uint64(len(s.regions)),
			inverted: f.inverted, mask: f.mask, anyOf: f.anyOf, ret: f.mask | f.anyOf}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.pagemap), ioctlPagemapScan, uintptr(unsafe.Pointer(&arg)))
		if errno != 0 {
			return nil, fmt.Errorf("PAGEMAP_SCAN of process %d from page %d: %w", s.span.PID, (at-s.span.Start)/memtrack.PageBytes, errno)
		}
		for _, r := range s.regions[:n] {
			for a := r.start; a < r.end; a += memtrack.PageBytes {
				pages = append(pages, (a-s.span.Start)/memtrack.PageBytes)
			}
		}
		if arg.walkEnd <= at {
			return nil, fmt.Errorf("PAGEMAP_SCAN of process %d stopped at page %d: %w", s.span.PID, (at-s.span.Start)/memtrack.PageBytes, errStuck)
		}
		at = arg.walkEnd
	}
	return pages, nil
}

var errStuck = errors.New("the kernel makes no progress")

func (s *scanner) close() error { return unix.Close(s.pagemap) }
