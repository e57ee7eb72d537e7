package ext4fs

import (
	"encoding/binary"
	"fmt"
)

// A descriptor's tags follow its header, and its copies follow it in the tags' order:
//
//	checksums v3  0 4 block   4 4 flags   8 4 block_hi   12 4 checksum of sequence and copy
//	otherwise     0 4 block   4 2 checksum (v2)   6 2 flags   8 4 block_hi (64bit)   and 2 bytes more with v2
//
// Behind a tag without the flag 2 are 16 bytes of uuid. Flags: 1 escaped, 2 same uuid, 4 deleted, 8 last of the descriptor.
//
// A revoke block: after the header 0x0C 4 bytes in use, its header's included; then blocks, 4 bytes each or 8 with
// 64bit. Copies of them in this and earlier transactions don't count.
const (
	headerBytes   = 12
	sumBytes      = 4
	commitSumAt   = 0x10
	revokeHead    = 16
	tagEscaped    = 1
	tagSameUUID   = 2
	tagLast       = 8
	tagUUIDBytes  = 16
	tagV3Bytes    = 16
	tagPlainBytes = 8
)

// tag is a copy in the log and the block it is of.
type tag struct {
	home   uint64
	logged logged
}

// scan reads the log up to its end and replays what is committed.
func (j *journal) scan() (map[uint64]logged, error) {
	var committed, open []tag
	revoked := map[uint64]uint32{}
	var openRevokes []uint64
	at, sequence := j.start, j.sequence
	for seen := uint32(0); seen < j.maxlen-j.first; seen++ { // once around at most
		p, err := j.block(at)
		if err != nil {
			return nil, err
		}
		if binary.BigEndian.Uint32(p) != journalMagic || binary.BigEndian.Uint32(p[8:]) != sequence {
			break // older blocks of the ring, or none
		}
		kind := binary.BigEndian.Uint32(p[4:])
		if j.sums() && !j.sumIsRight(kind, p) {
			break // the head is being written, or was when an older ring ended here
		}
		at = j.after(at)
		switch kind {
		case typeDescriptor:
			tags, err := j.tags(p, sequence)
			if err != nil {
				return nil, err
			}
			for i := range tags {
				if tags[i].logged.at, err = j.place(at); err != nil {
					return nil, err
				}
				at = j.after(at)
			}
			open = append(open, tags...)
			seen += uint32(len(tags))
		case typeRevoke:
			blocks, err := j.revokes(p)
			if err != nil {
				return nil, err
			}
			openRevokes = append(openRevokes, blocks...)
		case typeCommit:
			for _, n := range openRevokes {
				revoked[n] = sequence
			}
			committed = append(committed, open...)
			open, openRevokes = open[:0:0], nil
			sequence++
		default:
			return j.replay(committed, revoked), nil
		}
	}
	return j.replay(committed, revoked), nil
}

// after is the next block of the ring.
func (j *journal) after(n uint32) uint32 {
	if n++; n >= j.maxlen {
		return j.first
	}
	return n
}

func (j *journal) replay(committed []tag, revoked map[uint64]uint32) map[uint64]logged {
	newest := map[uint64]logged{}
	for _, t := range committed {
		// Sequences wrap.
		if r, ok := revoked[t.home]; ok && int32(t.logged.sequence-r) <= 0 {
			continue
		}
		newest[t.home] = t.logged
	}
	return newest
}

func (j *journal) sumIsRight(kind uint32, p []byte) bool {
	switch kind {
	case typeDescriptor, typeRevoke:
		end := len(p) - sumBytes
		return sumWithout(j.seed, p, end) == binary.BigEndian.Uint32(p[end:])
	case typeCommit:
		return sumWithout(j.seed, p, commitSumAt) == binary.BigEndian.Uint32(p[commitSumAt:])
	}
	return true
}

func (j *journal) tags(p []byte, sequence uint32) ([]tag, error) {
	size := tagPlainBytes
	if j.features&journal64bit != 0 {
		size += 4
	}
	if j.features&journalCsumV2 != 0 {
		size += 2
	}
	if j.features&journalCsumV3 != 0 {
		size = tagV3Bytes
	}
	end := len(p)
	if j.sums() {
		end -= sumBytes
	}
	var tags []tag
	for at := headerBytes; at+size <= end; {
		t := tag{uint64(binary.BigEndian.Uint32(p[at:])), logged{sequence: sequence, log: j}}
		var flags, high uint32
		if j.features&journalCsumV3 != 0 {
			flags, high, t.logged.sum = binary.BigEndian.Uint32(p[at+4:]), binary.BigEndian.Uint32(p[at+8:]), binary.BigEndian.Uint32(p[at+12:])
		} else {
			t.logged.sum, flags = uint32(binary.BigEndian.Uint16(p[at+4:])), uint32(binary.BigEndian.Uint16(p[at+6:]))
			if j.features&journal64bit != 0 {
				high = binary.BigEndian.Uint32(p[at+8:])
			}
		}
		if j.features&journal64bit != 0 {
			t.home |= uint64(high) << 32
		}
		if t.home >= j.fsBlocks {
			return nil, fmt.Errorf("%w: it holds block %d of %d", ErrCorrupt, t.home, j.fsBlocks)
		}
		t.logged.escaped = flags&tagEscaped != 0
		tags = append(tags, t)
		if flags&tagLast != 0 {
			break
		}
		at += size
		if flags&tagSameUUID == 0 {
			at += tagUUIDBytes
		}
	}
	return tags, nil
}

func (j *journal) revokes(p []byte) ([]uint64, error) {
	size, end := 4, len(p)
	if j.features&journal64bit != 0 {
		size = 8
	}
	if j.sums() {
		end -= sumBytes
	}
	used := binary.BigEndian.Uint32(p[headerBytes:])
	if used > uint32(end) {
		return nil, fmt.Errorf("%w: a revoke block with %d bytes in use", ErrCorrupt, used)
	}
	var blocks []uint64
	for at := revokeHead; at+size <= int(used); at += size {
		n := uint64(binary.BigEndian.Uint32(p[at:]))
		if size == 8 {
			n = binary.BigEndian.Uint64(p[at:])
		}
		blocks = append(blocks, n)
	}
	return blocks, nil
}
