package blockdelta

import (
	"iter"
	"maps"
	"slices"
)

// place says where a block's bytes are: absent from this layer, zero, or in slot place-firstSlot of the scratch file.
type place uint32

const (
	absent place = iota
	zero
	firstSlot
)

func (p place) inScratch() bool { return p >= firstSlot }

// offset is the slot's first byte in the scratch file.
func (p place) offset() int64 { return int64(p-firstSlot) * BlockBytes }

const (
	leafBlocks = 512                       // 2 MiB of disk; a leaf takes 2 KiB
	maxSlots   = 1<<32 - uint64(firstSlot) // 16 TiB of scratch file
	maxBlocks  = uint64(1) << 50           // so that byte offsets fit an int64 with room for sums
)

// leaf is the places of leafBlocks neighbouring blocks.
type leaf [leafBlocks]place

// zeroLeaf stands in every layer for a leaf whose blocks are all zero: discarding a whole disk costs a map entry per
// 2 MiB. It is never written; set copies it first.
var zeroLeaf = func() *leaf {
	l := new(leaf)
	for i := range l {
		l[i] = zero
	}
	return l
}()

// layer is a set of written blocks. A block that is in it stays in it.
type layer struct {
	leaves map[uint64]*leaf
	count  int // blocks that are not absent
}

func newLayer() *layer { return &layer{leaves: make(map[uint64]*leaf)} }

func (l *layer) get(block uint64) place {
	if lf := l.leaves[block/leafBlocks]; lf != nil {
		return lf[block%leafBlocks]
	}
	return absent
}

// lookup fills in those places that are absent so far.
func (l *layer) lookup(first uint64, places []place) {
	for len(places) > 0 {
		at := first % leafBlocks
		n := min(leafBlocks-at, uint64(len(places)))
		if lf := l.leaves[first/leafBlocks]; lf != nil {
			for i, p := range lf[at : at+n] {
				if places[i] == absent {
					places[i] = p
				}
			}
		}
		first, places = first+n, places[n:]
	}
}

// set puts a block at p, which is not absent, and gives its place until now.
func (l *layer) set(block uint64, p place) (old place) {
	lf := l.leaves[block/leafBlocks]
	switch {
	case lf == nil:
		lf = new(leaf)
		l.leaves[block/leafBlocks] = lf
	case lf == zeroLeaf && p != zero:
		own := *zeroLeaf
		lf = &own
		l.leaves[block/leafBlocks] = lf
	case lf == zeroLeaf:
		return zero
	}
	old, lf[block%leafBlocks] = lf[block%leafBlocks], p
	if old == absent {
		l.count++
	}
	return old
}

// setZero makes n blocks zero and appends the slots they had to freed.
func (l *layer) setZero(first, n uint64, freed []place) []place {
	for n > 0 {
		at := first % leafBlocks
		run := min(leafBlocks-at, n)
		index := first / leafBlocks
		lf := l.leaves[index]
		if lf == nil && run < leafBlocks {
			lf = new(leaf)
			l.leaves[index] = lf
		}
		if lf == nil {
			l.count += leafBlocks
		} else if lf != zeroLeaf {
			for i, p := range lf[at : at+run] {
				switch {
				case p == absent:
					l.count++
				case p.inScratch():
					freed = append(freed, p)
				}
				lf[at+uint64(i)] = zero
			}
		}
		if run == leafBlocks {
			l.leaves[index] = zeroLeaf
		}
		first, n = first+run, n-run
	}
	return freed
}

// mergeUnder adds the blocks of one leaf of an older layer that are absent here, and appends the others' slots to freed.
func (l *layer) mergeUnder(index uint64, older *leaf, freed []place) []place {
	mine := l.leaves[index]
	if mine == nil && older == zeroLeaf {
		l.leaves[index] = zeroLeaf
		l.count += leafBlocks
		return freed
	}
	for i, p := range older {
		if p == absent {
			continue
		}
		block := index*leafBlocks + uint64(i)
		if l.get(block) == absent {
			l.set(block, p)
		} else if p.inScratch() {
			freed = append(freed, p)
		}
	}
	return freed
}

// slots gives the slots of all blocks that have one.
func (l *layer) slots() []place {
	var slots []place
	for _, lf := range l.leaves {
		if lf == zeroLeaf {
			continue
		}
		for _, p := range lf {
			if p.inScratch() {
				slots = append(slots, p)
			}
		}
	}
	return slots
}

// blocks yields the layer's blocks in ascending order.
func (l *layer) blocks() iter.Seq2[uint64, place] {
	return func(yield func(uint64, place) bool) {
		for _, index := range slices.Sorted(maps.Keys(l.leaves)) {
			for i, p := range l.leaves[index] {
				if p != absent && !yield(index*leafBlocks+uint64(i), p) {
					return
				}
			}
		}
	}
}
