package ext4fs

import (
	"encoding/binary"
	"fmt"
)

// The superblock: 1024 bytes at byte 1024, little endian. What is read of it:
//
//	0x00 4  inodes_count          0x5C 4  feature_compat
//	0x04 4  blocks_count_lo       0x60 4  feature_incompat
//	0x14 4  first_data_block      0x64 4  feature_ro_compat
//	0x18 4  log_block_size        0x68 16 uuid
//	0x20 4  blocks_per_group      0xCE 2  reserved_gdt_blocks
//	0x28 4  inodes_per_group      0xE0 4  journal_inum
//	0x38 2  magic, 0xEF53         0xFE 2  desc_size
//	0x58 2  inode_size            0x150 4 blocks_count_hi
//
// A group descriptor: 32 bytes, or desc_size with the feature 64bit; hi only if it has 64 or more.
//
//	0x00, 0x20  block_bitmap lo, hi
//	0x08, 0x28  inode_table lo, hi
//	0x04, 0x24  inode_bitmap lo, hi
//	0x12 2      flags: 1 no inode in use, 2 no block in use but the group's own
//	0x1C, 0x32  itable_unused lo, hi (2 bytes each): inodes never used at the table's end
const (
	superMagic = 0xEF53

	compatJournal = 0x4

	incompatFiletype  = 0x2
	incompatRecover   = 0x4 // the journal holds something
	incompatExtents   = 0x40
	incompat64bit     = 0x80
	incompatFlexGroup = 0x200
	incompatEAInode   = 0x400
	incompatCsumSeed  = 0x2000
	incompatLargeDir  = 0x4000
	incompatKnown     = incompatFiletype | incompatRecover | incompatExtents | incompat64bit | incompatFlexGroup | incompatEAInode | incompatCsumSeed | incompatLargeDir

	roCompatGroupCsum    = 0x10
	roCompatBigalloc     = 0x200
	roCompatMetadataCsum = 0x400

	groupNoInodes = 1
	groupNoBlocks = 2

	rootInode = 2
)

type super struct {
	blocks          uint64
	inodes          uint32
	blocksPerGroup  uint64
	inodesPerGroup  uint32
	inodeBytes      uint32
	descBytes       uint32
	reservedGDT     uint64
	journalInode    uint32
	hasJournal      bool
	needsReplay     bool
	knowsUnusedEnds bool // itable_unused and the flags of groups count
}

type group struct {
	blockBitmap, inodeBitmap, inodeTable uint64
	noInodes, noBlocks                   bool
	usedInodes                           uint32
}

func parseSuper(first []byte, diskBlocks uint64) (super, error) {
	p := first[1024:2048]
	u16 := func(at int) uint32 { return uint32(binary.LittleEndian.Uint16(p[at:])) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }
	if u16(0x38) != superMagic {
		return super{}, fmt.Errorf("%w: the disk holds no ext4", ErrUnsupported)
	}
	compat, incompat, ro := u32(0x5C), u32(0x60), u32(0x64)
	switch {
	case u32(0x18) != 2:
		return super{}, fmt.Errorf("%w: its blocks don't have 4096 bytes", ErrUnsupported)
	case incompat&^incompatKnown != 0 || ro&roCompatBigalloc != 0 || incompat&incompatFiletype == 0:
		return super{}, fmt.Errorf("%w: it has features that flash doesn't know: incompat %#x, ro_compat %#x", ErrUnsupported, incompat, ro)
	}
	s := super{
		blocks:          uint64(u32(0x04)),
		inodes:          u32(0),
		blocksPerGroup:  uint64(u32(0x20)),
		inodesPerGroup:  u32(0x28),
		inodeBytes:      u16(0x58),
		descBytes:       32,
		reservedGDT:     uint64(u16(0xCE)),
		journalInode:    u32(0xE0),
		hasJournal:      compat&compatJournal != 0,
		needsReplay:     incompat&incompatRecover != 0,
		knowsUnusedEnds: ro&(roCompatGroupCsum|roCompatMetadataCsum) != 0,
	}
	if incompat&incompat64bit != 0 {
		s.blocks |= uint64(u32(0x150)) << 32
		s.descBytes = u16(0xFE)
	}
	const maxPerGroup = 8 * blockBytes // one block of bitmap
	switch {
	case s.blocks == 0 || s.blocks > diskBlocks:
		return s, fmt.Errorf("%w: %d blocks on a disk of %d", ErrCorrupt, s.blocks, diskBlocks)
	case s.blocksPerGroup < 256 || s.blocksPerGroup > maxPerGroup || u32(0x14) != 0:
		return s, fmt.Errorf("%w: groups of %d blocks", ErrCorrupt, s.blocksPerGroup)
	case s.inodeBytes < 128 || s.inodeBytes > blockBytes || s.inodeBytes&(s.inodeBytes-1) != 0:
		return s, fmt.Errorf("%w: inodes of %d bytes", ErrCorrupt, s.inodeBytes)
	case s.inodesPerGroup < s.inodesPerBlock() || s.inodesPerGroup > maxPerGroup || s.inodesPerGroup%s.inodesPerBlock() != 0:
		return s, fmt.Errorf("%w: groups of %d inodes", ErrCorrupt, s.inodesPerGroup)
	case s.descBytes < 32 || s.descBytes > 1024 || s.descBytes&(s.descBytes-1) != 0:
		return s, fmt.Errorf("%w: group descriptors of %d bytes", ErrCorrupt, s.descBytes)
	case uint64(s.inodes) > s.groups()*uint64(s.inodesPerGroup):
		return s, fmt.Errorf("%w: %d inodes in %d groups", ErrCorrupt, s.inodes, s.groups())
	}
	return s, nil
}

func (s *super) groups() uint64 { return (s.blocks + s.blocksPerGroup - 1) / s.blocksPerGroup }

func (s *super) inodesPerBlock() uint32 { return blockBytes / s.inodeBytes }

func (s *super) tableBlocks() uint64 { return uint64(s.inodesPerGroup / s.inodesPerBlock()) }

func (s *super) gdtBlocks() uint64 {
	return (s.groups()*uint64(s.descBytes) + blockBytes - 1) / blockBytes
}

// hasSuper tells whether a group may begin with a copy of the superblock and the group descriptors.
func hasSuper(g uint64) bool {
	if g <= 1 {
		return true
	}
	for _, base := range []uint64{3, 5, 7} {
		n := g
		for n%base == 0 {
			n /= base
		}
		if n == 1 {
			return true
		}
	}
	return false
}

func readGroups(r *reader, s *super) ([]group, error) {
	groups := make([]group, 0, s.groups())
	for b := range s.gdtBlocks() {
		p, err := r.block(1 + b)
		if err != nil {
			return nil, err
		}
		for at := uint32(0); at < blockBytes && len(groups) < cap(groups); at += s.descBytes {
			g, err := parseGroup(p[at:at+s.descBytes], s)
			if err != nil {
				return nil, fmt.Errorf("group %d: %w", len(groups), err)
			}
			groups = append(groups, g)
		}
	}
	return groups, nil
}

func parseGroup(p []byte, s *super) (group, error) {
	block := func(lo, hi int) uint64 {
		n := uint64(binary.LittleEndian.Uint32(p[lo:]))
		if len(p) >= 64 {
			n |= uint64(binary.LittleEndian.Uint32(p[hi:])) << 32
		}
		return n
	}
	g := group{blockBitmap: block(0, 0x20), inodeBitmap: block(4, 0x24), inodeTable: block(8, 0x28), usedInodes: s.inodesPerGroup}
	if g.blockBitmap >= s.blocks || g.inodeBitmap >= s.blocks || g.inodeTable >= s.blocks || s.tableBlocks() > s.blocks-g.inodeTable {
		return g, fmt.Errorf("%w: its tables at %d, %d, %d of %d blocks", ErrCorrupt, g.blockBitmap, g.inodeBitmap, g.inodeTable, s.blocks)
	}
	if !s.knowsUnusedEnds {
		return g, nil
	}
	flags := binary.LittleEndian.Uint16(p[0x12:])
	g.noInodes, g.noBlocks = flags&groupNoInodes != 0, flags&groupNoBlocks != 0
	unused := uint32(binary.LittleEndian.Uint16(p[0x1C:]))
	if len(p) >= 64 {
		unused |= uint32(binary.LittleEndian.Uint16(p[0x32:])) << 16
	}
	if unused > s.inodesPerGroup {
		return g, fmt.Errorf("%w: %d of %d inodes unused", ErrCorrupt, unused, s.inodesPerGroup)
	}
	g.usedInodes -= unused
	return g, nil
}
