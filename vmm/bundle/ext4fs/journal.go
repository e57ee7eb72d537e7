package ext4fs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The journal (jbd2) is a file of blocks, big endian. Block 0 is its superblock; the log is a ring of the blocks from
// first to maxlen. Each block that isn't a copy begins with a header:
//
//	0 4 magic 0xC03B3998   4 4 type: 1 descriptor, 2 commit, 3 and 4 superblock, 5 revoke   8 4 sequence
//
// The superblock, after its header:
//
//	0x0C 4 block size   0x10 4 maxlen   0x14 4 first
//	0x18 4 sequence of the first transaction in the log   0x1C 4 start: its block; 0: the log is empty
//	0x28 4 feature_incompat (type 4)   0x30 16 uuid   0xFC 4 checksum of the first 1024 bytes, this field as 0
//
// A transaction is descriptors, each followed by the copies its tags name, and revoke blocks, in any order, then one
// commit block; all bear its sequence. One without a valid commit never happened, and the log ends there.
//
// Checksums are crc32c without the final inversion, begun with that of the uuid. A descriptor and a revoke block have
// theirs in the last 4 bytes, counted as 0. A commit block has it at 0x10.
const (
	journalMagic = 0xC03B3998

	typeDescriptor = 1
	typeCommit     = 2
	typeSuperV1    = 3
	typeSuperV2    = 4
	typeRevoke     = 5

	journal64bit       = 0x2
	journalCsumV2      = 0x8
	journalCsumV3      = 0x10
	journalFastCommits = 0x20
	journalKnown       = 0x1 | journal64bit | 0x4 | journalCsumV2 | journalCsumV3 // 1 revokes, 4 asynchronous commits

	maxJournalBlocks = 1 << 18 // 1 GiB, the most that mke2fs makes
)

// logged is a copy of a block in the journal.
type logged struct {
	at       uint64 // where on the disk
	escaped  bool   // the copy's first 4 bytes are 0 and stand for the journal's magic
	sequence uint32
	sum      uint32
	log      *journal // checks sum
}

type journal struct {
	r        *reader
	extents  []extent
	fsBlocks uint64

	maxlen, first, start, sequence uint32
	features                       uint32
	seed                           uint32
}

// readJournal gives the blocks for which the log holds newer content than their home.
func readJournal(r *reader, extents []extent, fsBlocks uint64) (map[uint64]logged, error) {
	j := &journal{r: r, extents: extents, fsBlocks: fsBlocks}
	if err := j.readSuper(); err != nil {
		return nil, err
	}
	if j.start == 0 {
		return nil, nil
	}
	return j.scan()
}

// place is where a block of the journal lies on the disk.
func (j *journal) place(n uint32) (uint64, error) {
	for _, e := range j.extents {
		if uint64(n) >= e.logical && uint64(n) < e.end() {
			return e.physical + uint64(n) - e.logical, nil
		}
	}
	return 0, fmt.Errorf("%w: it has no block %d", ErrCorrupt, n)
}

func (j *journal) block(n uint32) ([]byte, error) {
	at, err := j.place(n)
	if err != nil {
		return nil, err
	}
	return j.r.block(at)
}

func (j *journal) readSuper() error {
	p, err := j.block(0)
	if err != nil {
		return err
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(p[at:]) }
	kind := u32(4)
	if u32(0) != journalMagic || kind != typeSuperV1 && kind != typeSuperV2 {
		return fmt.Errorf("%w: it begins with %#x, type %d", ErrCorrupt, u32(0), kind)
	}
	j.maxlen, j.first, j.sequence, j.start = u32(0x10), u32(0x14), u32(0x18), u32(0x1C)
	if kind == typeSuperV2 {
		j.features = u32(0x28)
	}
	if j.features&^uint32(journalKnown) != 0 {
		return fmt.Errorf("%w: it has features that flash doesn't know: %#x", ErrUnsupported, j.features)
	}
	if u32(0x0C) != blockBytes || j.maxlen > maxJournalBlocks || j.first == 0 || j.first >= j.maxlen || j.start != 0 && j.start < j.first || j.start >= j.maxlen {
		return fmt.Errorf("%w: blocks of %d bytes, the log from %d to %d, begun at %d", ErrCorrupt, u32(0x0C), j.first, j.maxlen, j.start)
	}
	if !j.sums() {
		return nil
	}
	j.seed = rawSum(^uint32(0), p[0x30:0x40])
	if sumWithout(^uint32(0), p[:1024], 0xFC) != u32(0xFC) {
		return fmt.Errorf("%w: its superblock's checksum", ErrCorrupt)
	}
	return nil
}

// sums tells whether blocks of the log have checksums that are worth something.
func (j *journal) sums() bool { return j.features&(journalCsumV2|journalCsumV3) != 0 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawSum is crc32c as the kernel chains it: without the inversions at both ends.
func rawSum(seed uint32, p []byte) uint32 { return ^crc32.Update(^seed, castagnoli, p) }

// sumWithout is the sum of p with the 4 bytes at a place as 0.
func sumWithout(seed uint32, p []byte, at int) uint32 {
	return rawSum(rawSum(rawSum(seed, p[:at]), make([]byte, 4)), p[at+4:])
}

// open gives what a copy stands for.
func (l *logged) open(home uint64, p []byte) ([]byte, error) {
	if l.log.sums() {
		var seq [4]byte
		binary.BigEndian.PutUint32(seq[:], l.sequence)
		sum := rawSum(rawSum(l.log.seed, seq[:]), p)
		if l.log.features&journalCsumV3 == 0 {
			sum &= 0xFFFF
		}
		if sum != l.sum {
			return nil, fmt.Errorf("%w: the checksum of block %d in the journal, at %d", ErrCorrupt, home, l.at)
		}
	}
	if l.escaped {
		q := make([]byte, len(p))
		copy(q, p)
		binary.BigEndian.PutUint32(q, journalMagic)
		return q, nil
	}
	return p, nil
}
