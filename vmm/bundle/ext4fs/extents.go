package ext4fs

import (
	"encoding/binary"
	"fmt"
)

// A node of an extent tree: the 60 bytes in the inode, or a block. A header and entries, 12 bytes each, little endian:
//
//	header  0 2 magic 0xF30A   2 2 entries   4 2 most entries   6 2 depth, 0: extents   8 4 generation
//	extent  0 4 first logical block   4 2 length; above 32768: length-32768 blocks that read as zeros   6 2 start_hi   8 4 start_lo
//	index   0 4 first logical block   4 4 child_lo   8 2 child_hi   10 2 unused
const (
	extentMagic     = 0xF30A
	extentNodeBytes = 12
	maxExtentDepth  = 5
	maxExtentBlocks = 32768
	maxExtents      = 1 << 20 // of one file: at least 4 GiB, and some 128 TiB of a file that isn't in pieces
)

// extent is a run of a file's blocks. What lies between extents reads as zeros.
type extent struct {
	logical  uint64
	physical uint64
	count    uint64
}

func (e *extent) end() uint64 { return e.logical + e.count }

// file is where the blocks of an inode lie.
type file struct {
	extents []extent // written ones, ascending
	other   []run    // the blocks of its tree and extended attributes, and those allocated that read as zeros
}

// runs are all blocks that belong to it.
func (f *file) runs() []run {
	runs := append(make([]run, 0, len(f.extents)+len(f.other)), f.other...)
	for _, e := range f.extents {
		runs = append(runs, run{e.physical, e.count})
	}
	return runs
}

// touched tells whether one of its blocks is in the set.
func (f *file) touched(changed blockSet) bool {
	for _, r := range f.runs() {
		if len(changed.within(r.first, r.count)) > 0 {
			return true
		}
	}
	return false
}

func (s *side) layout(in *inode) (*file, error) {
	f := &file{}
	if in.acl != 0 && in.acl < s.blocks {
		f.other = append(f.other, run{in.acl, 1})
	}
	if !in.hasBlocks() {
		return f, nil
	}
	if in.flags&flagExtents == 0 {
		return nil, fmt.Errorf("%w: inode %d has no extents", ErrUnsupported, in.number)
	}
	w := treeWalk{s, f, 0}
	if err := w.node(in.block[:], maxExtentDepth, true); err != nil {
		return nil, fmt.Errorf("inode %d: %w", in.number, err)
	}
	return f, nil
}

type treeWalk struct {
	*side
	*file
	next uint64 // logical block from which the next extent may begin
}

// node reads a node of at most the depth; below the root the depth is exact.
func (w *treeWalk) node(p []byte, depth int, root bool) error {
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(p[at:])) }
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(p[at:])) }
	entries, found := u16(2), u16(6)
	if u16(0) != extentMagic || entries > len(p)/extentNodeBytes-1 || found > depth || !root && found != depth {
		return fmt.Errorf("%w: a node of its extent tree with magic %#x, %d entries, depth %d", ErrCorrupt, u16(0), entries, found)
	}
	for i := 1; i <= entries; i++ {
		at := i * extentNodeBytes
		if found > 0 {
			child := u32(at+4) | uint64(u16(at+8))<<32
			if child == 0 || child >= w.blocks {
				return fmt.Errorf("%w: its extent tree goes on at block %d of %d", ErrCorrupt, child, w.blocks)
			}
			w.other = append(w.other, run{child, 1})
			q, err := w.block(child)
			if err != nil {
				return err
			}
			if err := w.node(q, found-1, false); err != nil {
				return err
			}
			continue
		}
		e := extent{logical: u32(at), physical: u32(at+8) | uint64(u16(at+6))<<32, count: uint64(u16(at + 4))}
		zeros := e.count > maxExtentBlocks
		if zeros {
			e.count -= maxExtentBlocks
		}
		if e.count == 0 || e.logical < w.next || e.physical == 0 || e.physical >= w.blocks || e.count > w.blocks-e.physical {
			return fmt.Errorf("%w: its blocks from %d on at %d, %d of them", ErrCorrupt, e.logical, e.physical, e.count)
		}
		w.next = e.end()
		if err := w.meter.piece(); err != nil {
			return err
		}
		if len(w.extents)+len(w.other) >= maxExtents {
			return fmt.Errorf("%w: a file in more than %d pieces", ErrTooLarge, maxExtents)
		}
		if zeros {
			w.other = append(w.other, run{e.physical, e.count})
		} else {
			w.extents = append(w.extents, e)
		}
	}
	return nil
}
