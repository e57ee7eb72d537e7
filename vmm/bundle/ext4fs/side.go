package ext4fs

import "fmt"

// side is the file system of one disk, its journal replayed.
type side struct {
	*reader
	super
	groups []group
}

func openSide(r *reader) (*side, error) {
	s := &side{reader: r}
	if err := s.readLayout(); err != nil {
		return nil, err
	}
	if !s.hasJournal || !s.needsReplay {
		return s, nil
	}
	// The journal's inode and its blocks never change, so they can be looked up before it is replayed.
	in, err := s.inode(s.journalInode)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	f, err := s.layout(&in)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	replay, err := readJournal(r, f.extents, s.blocks)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	r.through(replay)
	return s, s.readLayout()
}

func (s *side) readLayout() error {
	first, err := s.block(0)
	if err != nil {
		return err
	}
	if s.super, err = parseSuper(first, s.diskBlocks); err != nil {
		return err
	}
	s.groups, err = readGroups(s.reader, &s.super)
	return err
}

// inUse tells whether a block is allocated.
func (s *side) inUse(block uint64) (bool, error) {
	g := block / s.blocksPerGroup
	if g >= uint64(len(s.groups)) || s.groups[g].noBlocks {
		return false, nil
	}
	bitmap, err := s.block(s.groups[g].blockBitmap)
	if err != nil {
		return false, err
	}
	bit := block % s.blocksPerGroup
	return bitmap[bit/8]&(1<<(bit%8)) != 0, nil
}

// ownRuns are the blocks of the file system itself: what changes in them is seen elsewhere.
func (s *side) ownRuns() ([]run, error) {
	var runs []run
	for i, g := range s.groups {
		runs = append(runs, run{g.blockBitmap, 1}, run{g.inodeBitmap, 1}, run{g.inodeTable, s.tableBlocks()})
		if hasSuper(uint64(i)) {
			runs = append(runs, run{uint64(i) * s.blocksPerGroup, 1 + s.gdtBlocks() + s.reservedGDT})
		}
	}
	if !s.hasJournal {
		return runs, nil
	}
	in, err := s.inode(s.journalInode)
	if err != nil {
		return nil, err
	}
	f, err := s.layout(&in)
	if err != nil {
		return nil, err
	}
	return append(runs, f.runs()...), nil
}
