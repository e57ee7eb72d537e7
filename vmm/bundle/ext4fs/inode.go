package ext4fs

import (
	"encoding/binary"
	"fmt"
)

// An inode: the first 128 of inode_size bytes, little endian. What is read of it:
//
//	0x00 2  mode                 0x28 60  block: extent tree, link target or device number
//	0x02 2  uid_lo               0x68 4   file_acl_lo: the block of extended attributes
//	0x04 4  size_lo              0x6C 4   size_hi
//	0x18 2  gid_lo               0x76 2   file_acl_hi
//	0x1A 2  links_count          0x78 2   uid_hi
//	0x20 4  flags                0x7A 2   gid_hi
const (
	typeMask    = 0xF000
	typeChar    = 0x2000
	typeDir     = 0x4000
	typeBlock   = 0x6000
	typeRegular = 0x8000
	typeLink    = 0xA000

	flagExtents = 0x80000

	inlineBytes = 60
)

type inode struct {
	number   uint32
	mode     uint16
	links    uint16
	uid, gid uint32
	size     uint64
	flags    uint32
	acl      uint64
	block    [inlineBytes]byte
}

func (in *inode) kind() uint16 { return in.mode & typeMask }

func (in *inode) isDir() bool { return in.kind() == typeDir }

// shown is the size that is told: what ext4 gives a directory as its size means nothing to a user.
func (in *inode) shown() int64 {
	if in.isDir() {
		return 0
	}
	return int64(in.size &^ (1 << 63))
}

// place tells in which block of an inode table an inode lies, and at which byte.
func (s *side) place(number uint32) (block uint64, at uint32, err error) {
	if number == 0 || number > s.inodes {
		return 0, 0, fmt.Errorf("%w: inode %d of %d", ErrCorrupt, number, s.inodes)
	}
	g, i := (number-1)/s.inodesPerGroup, (number-1)%s.inodesPerGroup
	return s.groups[g].inodeTable + uint64(i/s.inodesPerBlock()), i % s.inodesPerBlock() * s.inodeBytes, nil
}

func (s *side) inode(number uint32) (inode, error) {
	block, at, err := s.place(number)
	if err != nil {
		return inode{}, err
	}
	p, err := s.block(block)
	if err != nil {
		return inode{}, err
	}
	return parseInode(number, p[at:at+s.inodeBytes]), nil
}

// loadInodes brings the table blocks of inodes that will be asked for.
func (s *side) loadInodes(numbers []uint32) error {
	blocks := make([]uint64, 0, len(numbers))
	for _, n := range numbers {
		block, _, err := s.place(n)
		if err != nil {
			return err
		}
		if len(blocks) == 0 || blocks[len(blocks)-1] != block {
			blocks = append(blocks, block)
		}
	}
	return s.load(blocks)
}

func parseInode(number uint32, p []byte) inode {
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
	in := inode{
		number: number,
		mode:   u16(0),
		links:  u16(0x1A),
		uid:    uint32(u16(2)) | uint32(u16(0x78))<<16,
		gid:    uint32(u16(0x18)) | uint32(u16(0x7A))<<16,
		size:   uint64(u32(4)) | uint64(u32(0x6C))<<32,
		flags:  u32(0x20),
		acl:    uint64(u32(0x68)) | uint64(u16(0x76))<<32,
	}
	copy(in.block[:], p[0x28:])
	return in
}

// hasBlocks tells whether what is in block leads to blocks of content.
func (in *inode) hasBlocks() bool {
	switch in.kind() {
	case typeRegular, typeDir:
		return true
	case typeLink:
		return in.flags&flagExtents != 0 || in.size >= inlineBytes
	}
	return false
}
