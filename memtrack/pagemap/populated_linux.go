package pagemap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// mapping is one line of /proc/PID/maps.
type mapping struct {
	start, end, offset uint64
	shared             bool
	inode              uint64
}

// mappingsOf gives the mappings that overlap s.
func mappingsOf(s memtrack.Span) ([]mapping, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.PID))
	if err != nil {
		return nil, err
	}
	var found []mapping
	for line := range strings.Lines(string(text)) {
		var m mapping
		var perms, device string
		if n, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.start, &m.end, &perms, &m.offset, &device, &m.inode); n != 6 {
			return nil, fmt.Errorf("read /proc/%d/maps: line %q: %w", s.PID, strings.TrimSpace(line), err)
		}
		m.shared = strings.HasSuffix(perms, "s")
		if m.start < s.End && m.end > s.Start {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("process %d has nothing mapped at %x-%x", s.PID, s.Start, s.End)
	}
	return found, nil
}

// present is what a scan shows of pages that this process may have written: in a private mapping, a page of the file or
// the zero page was only read.
func present(s memtrack.Span) filter {
	if sharedAt(s) {
		return filter{mask: pageIsPresent}
	}
	return filter{mask: pageIsPresent | pageIsFile | pageIsPFNZero, inverted: pageIsFile | pageIsPFNZero}
}

func sharedAt(s memtrack.Span) bool {
	ms, err := mappingsOf(s)
	if err != nil {
		return true // the wider answer
	}
	for _, m := range ms {
		if m.shared {
			return true
		}
	}
	return false
}

// populated gives the pages that hold something, before markers are placed (a marker looks like a swapped page).
func populated(s memtrack.Span, reader *scanner) ([]uint64, error) {
	pages, err := reader.scan(present(s))
	if err != nil {
		return nil, err
	}
	swapped, err := reader.scan(filter{mask: pageIsSwapped})
	if err != nil {
		return nil, err
	}
	inFile, err := fileData(s)
	if err != nil {
		return nil, err
	}
	return memtrack.Union(memtrack.Union(pages, swapped), inFile), nil
}

// fileData gives the pages of shared mappings that the file behind them holds, wherever the kernel keeps them.
func fileData(s memtrack.Span) (pages []uint64, err error) {
	ms, err := mappingsOf(s)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if !m.shared || m.inode == 0 {
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

func dataOf(s memtrack.Span, m mapping) (pages []uint64, err error) {
	path := "/proc/" + strconv.Itoa(s.PID) + "/map_files/" + strconv.FormatUint(m.start, 16) + "-" + strconv.FormatUint(m.end, 16)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	first, last := max(m.start, s.Start), min(m.end, s.End)
	for at := first; at < last; {
		from, err := f.Seek(int64(at-m.start+m.offset), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if err != nil {
			return nil, err
		}
		to, err := f.Seek(from, unix.SEEK_HOLE)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		at = min(last, uint64(to)-m.offset+m.start)
		for a := uint64(from) - m.offset + m.start; a < at; a += memtrack.PageBytes {
			pages = append(pages, (a-s.Start)/memtrack.PageBytes)
		}
	}
	return pages, nil
}
