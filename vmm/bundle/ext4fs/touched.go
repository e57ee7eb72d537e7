package ext4fs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// findTouched finds the inodes that may have changed; every other is the same on both sides with all its blocks.
func (c *comparison) findTouched() error {
	if err := c.touchedByTables(); err != nil {
		return err
	}
	var known []run
	for _, s := range []*side{c.before, c.after} {
		runs, err := s.ownRuns()
		if err != nil {
			return err
		}
		known = append(known, runs...)
		for number := range c.touched {
			in, err := s.inode(number)
			if err != nil {
				return err
			}
			f, err := s.layout(&in)
			if errors.Is(err, ErrUnsupported) || in.links == 0 && errors.Is(err, ErrCorrupt) {
				continue // without extents; or a removed file's inode, which holds what it likes
			}
			if err != nil {
				return err
			}
			known = append(known, f.runs()...)
		}
	}
	var unknown blockSet
	for _, n := range c.changed.without(known) {
		used, err := c.after.inUse(n)
		if err != nil {
			return err
		}
		if used {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return c.findOwners(unknown)
}

// touchedByTables finds the inodes whose entry differs.
func (c *comparison) touchedByTables() error {
	type table struct {
		first uint64
		group uint32
	}
	s := c.after
	if len(c.before.groups) > len(s.groups) {
		s = c.before
	}
	tables := make([]table, len(s.groups))
	for i, g := range s.groups {
		tables[i] = table{g.inodeTable, uint32(i)}
		if both := min(len(c.before.groups), len(c.after.groups)); i < both && c.before.groups[i].inodeTable != c.after.groups[i].inodeTable {
			return fmt.Errorf("%w: its inode tables lie elsewhere than before", ErrUnsupported)
		}
	}
	slices.SortFunc(tables, func(a, b table) int { return cmp.Compare(a.first, b.first) })
	perBlock := s.inodesPerBlock()
	for _, t := range tables {
		blocks := c.changed.within(t.first, s.tableBlocks())
		if err := c.load(blocks); err != nil {
			return err
		}
		for _, n := range blocks {
			p, err := c.before.block(n)
			if err != nil {
				return err
			}
			q, err := c.after.block(n)
			if err != nil {
				return err
			}
			for i := range perBlock {
				from, to := i*s.inodeBytes, (i+1)*s.inodeBytes
				number := t.group*s.inodesPerGroup + uint32(n-t.first)*perBlock + i + 1
				if number <= min(c.before.inodes, c.after.inodes) && !bytes.Equal(p[from:to], q[from:to]) {
					c.touched[number] = true
				}
			}
		}
	}
	return nil
}

// load brings blocks of both sides.
func (c *comparison) load(blocks []uint64) error {
	if err := c.before.load(blocks); err != nil {
		return err
	}
	return c.after.load(blocks)
}

// findOwners reads all inodes in use to find those that changed blocks belong to.
func (c *comparison) findOwners(changed blockSet) error {
	s := c.after
	for g := range s.groups {
		if s.groups[g].noInodes {
			continue
		}
		perBlock := s.inodesPerBlock()
		first := uint32(g) * s.inodesPerGroup
		end := min(first+s.groups[g].usedInodes, s.inodes)
		for number := first; number < end; number++ {
			if number%(perBlock*loadBlocks) == 0 || number == first {
				if err := s.loadTable(number, min(end, (number/(perBlock*loadBlocks)+1)*perBlock*loadBlocks)); err != nil {
					return err
				}
			}
			in, err := s.inode(number + 1)
			if err != nil {
				return err
			}
			if in.links == 0 || c.touched[number+1] {
				continue
			}
			f, err := s.layout(&in)
			if errors.Is(err, ErrUnsupported) {
				continue // the resize inode; of other files without extents, changes in place stay unseen
			}
			if err != nil {
				return err
			}
			if f.touched(changed) {
				c.touched[number+1] = true
			}
		}
	}
	return nil
}

// loadTable brings the entries of inodes first+1 to end.
func (s *side) loadTable(first, end uint32) error {
	var blocks []uint64
	for n := first; n < end; n += s.inodesPerBlock() {
		block, _, err := s.place(n + 1)
		if err != nil {
			return err
		}
		blocks = append(blocks, block)
	}
	return s.load(blocks)
}
