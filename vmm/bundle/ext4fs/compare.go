package ext4fs

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Kind is how a file differs.
type Kind string

const (
	Added    Kind = "added"
	Removed  Kind = "removed"
	Modified Kind = "modified" // content, size, mode, owner, link target or device number; times alone don't count
)

// Change is one path that differs. A directory's path ends with a slash, and its Bytes are 0. A file with several names is
// one change each. A renamed file is removed and added.
type Change struct {
	Path  string
	Kind  Kind
	Bytes int64 // its size now, or before it was removed
}

// Result is what Compare found.
type Result struct {
	Changes []Change // by path
	More    bool     // there are more than the limit
	Guessed int      // files of equal size called modified without their content having been compared to the end
}

// Compare tells which files differ between two disks of one machine. changed are all slots in which the disks differ,
// ascending. At most limit changes are listed.
func Compare(ctx context.Context, before, after Disk, changed []uint64, limit int) (Result, error) {
	if len(changed) == 0 {
		return Result{}, nil
	}
	m := &meter{}
	a, err := openSide(newReader(ctx, before, m))
	if err != nil {
		return Result{}, fmt.Errorf("before: %w", err)
	}
	b, err := openSide(newReader(ctx, after, m))
	if err != nil {
		return Result{}, fmt.Errorf("after: %w", err)
	}
	if a.inodesPerGroup != b.inodesPerGroup || a.blocksPerGroup != b.blocksPerGroup || a.inodeBytes != b.inodeBytes {
		return Result{}, fmt.Errorf("%w: it was made anew between the two", ErrUnsupported)
	}
	c := &comparison{ctx: ctx, before: a, after: b, limit: limit, touched: map[uint32]bool{}}
	if c.changed, err = changedThroughJournals(a, b, changed); err != nil {
		return Result{}, err
	}
	a.like(b.reader, c.changed)
	if err := c.findTouched(); err != nil {
		return Result{}, err
	}
	if err := c.walk(); err != nil {
		return Result{}, err
	}
	slices.SortFunc(c.result.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c.result, nil
}

type comparison struct {
	ctx           context.Context
	before, after *side
	changed       blockSet        // between the two, journals replayed
	touched       map[uint32]bool // inodes whose entry in a table, or a block of which, is changed
	limit         int
	compared      int // blocks of content
	result        Result
}

// changedThroughJournals gives the blocks in which the sides differ, from the slots in which the disks do.
func changedThroughJournals(a, b *side, slots []uint64) (blockSet, error) {
	raw := blockSet(slots)
	logged := make([]uint64, 0, len(a.replay)+len(b.replay))
	for _, s := range []*side{a, b} {
		for n := range s.replay {
			logged = append(logged, n)
		}
	}
	slices.Sort(logged)
	logged = slices.Compact(logged)
	for some := range slices.Chunk(logged, loadBlocks) {
		if err := a.load(some); err != nil {
			return nil, err
		}
		if err := b.load(some); err != nil {
			return nil, err
		}
	}
	var differ []uint64
	for _, n := range logged {
		la, inA := a.replay[n]
		lb, inB := b.replay[n]
		if inA && inB && la.at == lb.at && la.escaped == lb.escaped && !raw.has(la.at) {
			continue
		}
		p, err := a.block(n)
		if err != nil {
			return nil, err
		}
		q, err := b.block(n)
		if err != nil {
			return nil, err
		}
		if string(p) != string(q) {
			differ = append(differ, n)
		}
	}
	out := make(blockSet, 0, len(raw)+len(differ))
	for _, n := range raw {
		if !blockSet(logged).has(n) {
			out = append(out, n)
		}
	}
	out = append(out, differ...)
	slices.Sort(out)
	return out, nil
}
