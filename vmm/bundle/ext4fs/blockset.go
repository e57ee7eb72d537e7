package ext4fs

import (
	"cmp"
	"slices"
)

// blockSet is some blocks, ascending.
type blockSet []uint64

func (s blockSet) has(n uint64) bool {
	_, ok := slices.BinarySearch(s, n)
	return ok
}

// within gives those of a run.
func (s blockSet) within(first, count uint64) blockSet {
	from, _ := slices.BinarySearch(s, first)
	to, _ := slices.BinarySearch(s[from:], first+count)
	return s[from : from+to]
}

// run is some blocks side by side.
type run struct{ first, count uint64 }

// without gives the blocks that lie in none of the runs, which it sorts.
func (s blockSet) without(runs []run) blockSet {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	var left blockSet
	end, i := uint64(0), 0 // [0, end) of the runs that begin at or before the block
	for _, n := range s {
		for ; i < len(runs) && runs[i].first <= n; i++ {
			end = max(end, runs[i].first+runs[i].count)
		}
		if n >= end {
			left = append(left, n)
		}
	}
	return left
}
