package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"flash/cas"
)

const (
	// Version is the format version that is written, and the only one read.
	Version = 1
	// LeafEntries is the number of slots under a leaf: 512 KiB of an image.
	LeafEntries = 128
	// InnerEntries is the fan-out of inner nodes.
	InnerEntries = 256
	// MaxLevel is the level of the highest root.
	MaxLevel = 4
	// MaxImageBytes bounds an image; the tree of one has at most MaxLevel+1 levels.
	MaxImageBytes = 1 << 48
)

// 128 slots · 256^4 ≥ 2^48 / 4096
const _ = uint64(LeafEntries)<<(8*MaxLevel) - MaxImageBytes/cas.SlotBytes

// ErrFormat is what every refusal to decode is.
var ErrFormat = errors.New("not a format this version reads")

// Tag says what an entry holds.
type Tag uint8

const (
	Zero  Tag = 0
	Same  Tag = 1 // an 8-byte pattern over and over
	Chunk Tag = 2
)

// Entry is what a slot or a subtree holds.
type Entry struct {
	Hash cas.Hash // of a Chunk; of Same the first 8 bytes are the pattern
	Hint cas.Hint // of a Chunk, where known
	Tag  Tag
}

// Equal tells whether both hold the same; hints don't matter.
func (e *Entry) Equal(o *Entry) bool { return e.Tag == o.Tag && e.Hash == o.Hash }

// Ref is how to ask for a Chunk entry's chunk.
func (e *Entry) Ref() cas.Ref { return cas.Ref{Hash: e.Hash, Hint: e.Hint} }

// ChunkEntry is the entry for a chunk.
func ChunkEntry(r cas.Ref) Entry { return Entry{Tag: Chunk, Hash: r.Hash, Hint: r.Hint} }

// RootEntry is the entry for a root: a zero hash stands for an image of zeros.
func RootEntry(r cas.Ref) Entry {
	if r.Hash.IsZero() {
		return Entry{}
	}
	return ChunkEntry(r)
}

// SameEntry is the entry for a slot filled with one pattern, which is not zero.
func SameEntry(pattern [8]byte) Entry {
	e := Entry{Tag: Same}
	copy(e.Hash[:], pattern[:])
	return e
}

// Pattern is what a Same entry repeats.
func (e *Entry) Pattern() [8]byte { return [8]byte(e.Hash[:8]) }

// EntryCount is the number of entries of a node.
func EntryCount(level int) int {
	if level == 0 {
		return LeafEntries
	}
	return InnerEntries
}

// SlotsUnder is the number of slots under a node.
func SlotsUnder(level int) uint64 { return LeafEntries << (8 * level) }

// SlotCount is the number of slots of an image.
func SlotCount(imageBytes uint64) uint64 {
	return imageBytes/cas.SlotBytes + min(imageBytes%cas.SlotBytes, 1)
}

// RootLevel is the level of the root of an image.
func RootLevel(slots uint64) int {
	level := 0
	for SlotsUnder(level) < slots {
		level++
	}
	return level
}

const (
	magicNode = 'N'
	formFull  = 1
	formPatch = 2

	nodeHeaderBytes  = 4
	patchHeaderBytes = nodeHeaderBytes + 32 + 2
)

// AppendFull appends a full node, annotation included, and tells how many of the appended bytes are canonical.
// Preconditions: len(entries) = EntryCount(level), not all of them zero.
func AppendFull(dst []byte, level int, entries []Entry) (out []byte, named int) {
	if len(entries) != EntryCount(level) {
		panic(fmt.Sprintf("manifest: a node of level %d with %d entries", level, len(entries)))
	}
	start := len(dst)
	dst = append(dst, magicNode, Version, formFull, byte(level))
	tagsAt := len(dst)
	dst = append(dst, zeros[:len(entries)/4]...)
	held := 0
	for i := range entries {
		e := &entries[i]
		if e.Tag == Zero {
			continue
		}
		held++
		dst[tagsAt+i/4] |= byte(e.Tag) << (i % 4 * 2)
		dst = appendHeld(dst, level, e)
	}
	if held == 0 {
		panic("manifest: a node of zeros is an entry, not a node")
	}
	dst = pad(dst, start)
	named = len(dst) - start
	h := hintWriter{}
	for i := range entries {
		if entries[i].Tag == Chunk {
			h.add(entries[i].Hint)
		}
	}
	return h.appendTo(dst), named
}

// AppendPatch appends a patch, annotation included, and tells how many of the appended bytes are canonical.
// Preconditions: base is a full node of that level; index is ascending, not empty and as long as entries.
func AppendPatch(dst []byte, level int, base cas.Ref, index []uint8, entries []Entry) (out []byte, named int) {
	if len(index) == 0 || len(index) != len(entries) || len(index) > EntryCount(level) || base.Hash.IsZero() {
		panic(fmt.Sprintf("manifest: a patch of level %d with %d indices, %d entries", level, len(index), len(entries)))
	}
	start := len(dst)
	dst = append(dst, magicNode, Version, formPatch, byte(level))
	dst = append(dst, base.Hash[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(index)))
	for i := range entries {
		if int(index[i]) >= EntryCount(level) || i > 0 && index[i-1] >= index[i] {
			panic(fmt.Sprintf("manifest: patch index %d after %d", index[i], index[max(i-1, 0)]))
		}
		dst = append(dst, index[i], byte(entries[i].Tag))
		if entries[i].Tag != Zero {
			dst = appendHeld(dst, level, &entries[i])
		}
	}
	dst = pad(dst, start)
	named = len(dst) - start
	h := hintWriter{}
	h.add(base.Hint)
	for i := range entries {
		if entries[i].Tag == Chunk {
			h.add(entries[i].Hint)
		}
	}
	return h.appendTo(dst), named
}

func appendHeld(dst []byte, level int, e *Entry) []byte {
	switch {
	case e.Tag == Chunk && !e.Hash.IsZero():
		return append(dst, e.Hash[:]...)
	case e.Tag == Same && level == 0 && e.Pattern() != [8]byte{}:
		return append(dst, e.Hash[:8]...)
	}
	panic(fmt.Sprintf("manifest: entry with tag %d and hash %s at level %d", e.Tag, e.Hash, level))
}

var zeros [InnerEntries / 4]byte

// pad keeps canonical parts from being as long as a page.
func pad(dst []byte, start int) []byte {
	if len(dst)-start == cas.SlotBytes {
		dst = append(dst, 0)
	}
	return dst
}
