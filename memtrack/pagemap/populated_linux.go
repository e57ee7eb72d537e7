package pagemap

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// writtenShared is what a cut takes of shared memory: unprotected pages, protecting them again.
var writtenShared = filter{flags: flagWPMatching | flagCheckWPAsync, mask: pageIsWritten}

// writtenPrivate is what a cut takes of a private mapping: unprotected pages of its own, protecting them again. A page of the
// file behind it, or the zero page, was only read: a write would have made it the mapping's own. So absent pages need no
// markers, and arming doesn't take longer with more memory.
var writtenPrivate = filter{
	flags:    flagWPMatching | flagCheckWPAsync,
	mask:     pageIsWritten | pageIsFile | pageIsPFNZero,
	inverted: pageIsFile | pageIsPFNZero,
	anyOf:    pageIsPresent | pageIsSwapped,
}

// sharedAt tells whether any of a span is shared memory.
func sharedAt(s memtrack.Span) bool {
	ms, err := s.Within()
	if err != nil {
		return true // the wider answer
	}
	for _, m := range ms {
		if m.Shared {
			return true
		}
	}
	return false
}

// populated gives the pages of shared memory that hold something, before markers are placed: a marker looks like a swapped page.
func populated(s memtrack.Span, reader *scanner) ([]uint64, error) {
	inTable, err := reader.scan(filter{anyOf: pageIsPresent | pageIsSwapped})
	if err != nil {
		return nil, err
	}
	inFile, err := fileData(s)
	if err != nil {
		return nil, err
	}
	return memtrack.Union(inTable, inFile), nil
}

// fileData gives the pages of shared mappings that the file behind them holds, wherever the kernel keeps them.
func fileData(s memtrack.Span) (pages []uint64, err error) {
	ms, err := s.Within()
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if !m.Shared || m.Inode == 0 {
			continue
		}
		found, err := dataOf(s, m)
		if err != nil {
			return nil, err
		}
		pages = append(pages, found...)
	}
	return pages, nil
}

func dataOf(s memtrack.Span, m memtrack.Mapping) (pages []uint64, err error) {
	f, err := memtrack.OpenBehind(s.PID, m, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	first, last := max(m.Start, s.Start), min(m.End, s.End)
	for at := first; at < last; {
		from, err := f.Seek(int64(at-m.Start+m.Offset), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		to, err := f.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		at = min(last, uint64(to)-m.Offset+m.Start)
		for a := uint64(from) - m.Offset + m.Start; a < at; a += memtrack.PageBytes {
			pages = append(pages, (a-s.Start)/memtrack.PageBytes)
		}
	}
	return pages, nil
}
