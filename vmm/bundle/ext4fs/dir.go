package ext4fs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A block of a directory: entries, the last of which ends with the block, little endian.
//
//	0 4 inode, 0: none   4 2 length of the entry   6 1 length of the name   7 1 type, 2: directory   8 name
//
// The blocks of a hashed directory's index look like entries without an inode, and so does a block's checksum: reading
// all blocks in order finds all names in either kind.
const (
	entryHeadBytes = 8
	entryDir       = 2
	maxDirBlocks   = 1 << 14 // 64 MiB of names in one directory
)

// entry is a name in a directory.
type entry struct {
	name  string
	inode uint32
	isDir bool
}

// entries gives the names of a directory, sorted, without . and ..
func (s *side) entries(in *inode, f *file) ([]entry, error) {
	if !in.isDir() {
		return nil, fmt.Errorf("%w: inode %d is named as a directory and isn't one", ErrCorrupt, in.number)
	}
	var list []entry
	left := (in.size + blockBytes - 1) / blockBytes
	if left > maxDirBlocks {
		return nil, fmt.Errorf("%w: directory %d has %d bytes", ErrTooLarge, in.number, in.size)
	}
	for _, e := range f.extents {
		for i := range min(e.count, left) {
			p, err := s.block(e.physical + i)
			if err != nil {
				return nil, err
			}
			if list, err = parseEntries(list, p); err != nil {
				return nil, fmt.Errorf("directory %d: %w", in.number, err)
			}
		}
		left -= min(e.count, left)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(list); i++ {
		if list[i].name == list[i-1].name {
			return nil, fmt.Errorf("%w: directory %d has a name twice: %q", ErrCorrupt, in.number, list[i].name)
		}
	}
	return list, nil
}

// parseEntries appends the names in one block.
func parseEntries(list []entry, p []byte) ([]entry, error) {
	for at := 0; at < len(p); {
		if len(p)-at < entryHeadBytes {
			return nil, fmt.Errorf("%w: an entry at byte %d", ErrCorrupt, at)
		}
		number := binary.LittleEndian.Uint32(p[at:])
		length, name := int(binary.LittleEndian.Uint16(p[at+4:])), int(p[at+6])
		if length < entryHeadBytes || length%4 != 0 || length > len(p)-at || name > length-entryHeadBytes {
			return nil, fmt.Errorf("%w: an entry of %d bytes with a name of %d at byte %d", ErrCorrupt, length, name, at)
		}
		if number != 0 {
			q := p[at+entryHeadBytes : at+entryHeadBytes+name]
			if name == 0 || bytes.IndexByte(q, '/') >= 0 || bytes.IndexByte(q, 0) >= 0 {
				return nil, fmt.Errorf("%w: the name %q", ErrCorrupt, q)
			}
			if n := string(q); n != "." && n != ".." {
				list = append(list, entry{n, number, p[at+7] == entryDir})
			}
		}
		at += length
	}
	return list, nil
}

// dirBlocks are those that entries reads.
func dirBlocks(list []uint64, in *inode, f *file) []uint64 {
	left := min((in.size+blockBytes-1)/blockBytes, maxDirBlocks)
	for _, e := range f.extents {
		for i := range min(e.count, left) {
			list = append(list, e.physical+i)
		}
		left -= min(e.count, left)
	}
	return list
}
