package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// scratch is what one worker needs for one batch, kept for the next.
type scratch struct {
	hasher  cas.Hasher
	pages   []byte
	entries []manifest.Entry // of the batch's slots
	fresh   []int            // which of them differ from the parent's and need a chunk
	chunks  []cas.Chunk
	hints   []cas.Hint
	hashes  []cas.Hash
	nodes   []byte // encoded leaves, one behind another
}

func newScratch(h cas.Hasher) *scratch {
	return &scratch{hasher: h, pages: make([]byte, batchSlots*cas.SlotBytes), entries: make([]manifest.Entry, batchSlots)}
}

// work reads a batch's slots, stores what is new, and then the leaves.
func (w *imageWriter) work(ctx context.Context, ch Changes, b *batch) error {
	sc := w.s.scratch.Get().(*scratch)
	defer w.s.scratch.Put(sc)
	places, err := w.classify(ctx, ch, b, sc)
	if err != nil {
		return err
	}
	if len(sc.fresh) > 0 {
		if err := w.mayPut(); err != nil {
			return err
		}
	}
	if err := w.putPages(ctx, b, sc); err != nil {
		return err
	}
	return w.putLeaves(ctx, b, sc, places)
}

// classify reads each slot and finds what its entry is; places are the parent's leaves, in order.
func (w *imageWriter) classify(ctx context.Context, ch Changes, b *batch, sc *scratch) (places []place, err error) {
	sc.fresh, sc.hashes = sc.fresh[:0], sc.hashes[:0]
	b.stats.Slots = uint64(len(b.slots))
	var old place
	for i, slot := range b.slots {
		page := sc.pages[i*cas.SlotBytes:][:cas.SlotBytes:cas.SlotBytes]
		if err := ch.ReadSlot(ctx, slot, page); err != nil {
			return nil, fmt.Errorf("read changed slot %d: %w", slot, err)
		}
		if slot == w.slots-1 && w.spec.Bytes%cas.SlotBytes != 0 {
			clear(page[w.spec.Bytes%cas.SlotBytes:])
		}
		if i == 0 || leafOf(slot) != leafOf(b.slots[i-1]) {
			if old, err = w.old.nodeAt(ctx, 0, leafOf(slot)); err != nil {
				return nil, fmt.Errorf("parent: %w", err)
			}
			places = append(places, old)
		}
		before := &zeroEntry
		if old.node != nil {
			before = &old.node.entries[indexAt(slot, 0)]
		}
		e := &sc.entries[i]
		pattern, same := sameFilled(page)
		switch {
		case same && pattern == [8]byte{}:
			*e = manifest.Entry{}
			b.stats.Zero++
			continue
		case same:
			*e = manifest.SameEntry(pattern)
		default:
			*e = manifest.Entry{Tag: manifest.Chunk, Hash: sc.hasher.Sum(page)}
		}
		switch {
		case e.Equal(before):
			*e = *before // with its hint
			b.stats.Same++
		case same:
			b.stats.Known++
		default:
			sc.fresh = append(sc.fresh, i)
			sc.hashes = append(sc.hashes, e.Hash)
		}
	}
	return places, nil
}

func (w *imageWriter) putPages(ctx context.Context, b *batch, sc *scratch) error {
	if len(sc.fresh) == 0 {
		return nil
	}
	w.pub.addChunks(b, sc.hashes)
	sc.chunks, sc.hints = sc.chunks[:0], grow(sc.hints, len(sc.fresh))
	for _, i := range sc.fresh {
		sc.chunks = append(sc.chunks, cas.Chunk{Hash: sc.entries[i].Hash, Kind: cas.KindData,
			Data: sc.pages[i*cas.SlotBytes:][:cas.SlotBytes]})
	}
	stats, err := w.s.chunks.Put(ctx, sc.chunks, sc.hints)
	b.stats.PutStats = b.stats.PutStats.Add(stats)
	if err != nil {
		return fmt.Errorf("slots from %d on: %w", b.slots[0], err)
	}
	b.stats.New += uint64(stats.NewChunks)
	b.stats.Known += uint64(stats.Chunks - stats.NewChunks)
	for k, i := range sc.fresh {
		sc.entries[i].Hint = sc.hints[k]
	}
	return nil
}

// putLeaves stores the batch's leaves that are not there yet.
func (w *imageWriter) putLeaves(ctx context.Context, b *batch, sc *scratch, places []place) error {
	var fresh []int // of b.leaves
	var made []*node
	var ends []int
	sc.nodes, sc.chunks, sc.hashes = sc.nodes[:0], sc.chunks[:0], sc.hashes[:0]
	for i := 0; i < len(b.slots); places = places[1:] {
		old, position := places[0], leafOf(b.slots[i])
		entries := make([]manifest.Entry, manifest.LeafEntries)
		if w.carry && old.node != nil {
			copy(entries, old.node.entries)
		}
		for ; i < len(b.slots) && leafOf(b.slots[i]) == position; i++ {
			entries[indexAt(b.slots[i], 0)] = sc.entries[i]
		}
		n := &node{level: 0, entries: entries}
		v, err := w.s.encode(ctx, sc.nodes, n, old)
		if err != nil {
			return err
		}
		if v.named > 0 {
			sc.chunks = append(sc.chunks, cas.Chunk{Kind: cas.KindNode, Named: v.named})
			sc.nodes = v.out
			fresh, made, ends = append(fresh, len(b.leaves)), append(made, n), append(ends, len(sc.nodes))
		} else if w.carry && v.unchanged {
			continue
		}
		b.leaves = append(b.leaves, leafChange{position, v.entry})
	}
	if len(fresh) == 0 {
		return nil
	}
	start := 0
	for k := range sc.chunks {
		c := &sc.chunks[k]
		c.Data = sc.nodes[start:ends[k]]
		c.Hash = sc.hasher.Sum(c.Data[:c.Named])
		sc.hashes = append(sc.hashes, c.Hash)
		start = ends[k]
	}
	w.pub.addChunks(b, sc.hashes)
	sc.hints = grow(sc.hints, len(sc.chunks))
	stats, err := w.s.chunks.Put(ctx, sc.chunks, sc.hints)
	b.stats.PutStats = b.stats.PutStats.Add(stats)
	if err != nil {
		return fmt.Errorf("leaves from slot %d on: %w", b.slots[0], err)
	}
	w.pub.settle(b, sc.hashes)
	for k, at := range fresh {
		b.leaves[at].entry = manifest.ChunkEntry(cas.Ref{Hash: sc.chunks[k].Hash, Hint: sc.hints[k]})
		w.s.nodes.cache.add(sc.chunks[k].Hash, made[k])
	}
	return nil
}

// sameFilled tells whether a page is one 8-byte pattern over and over.
func sameFilled(page []byte) (pattern [8]byte, same bool) {
	// Most pages are told apart by their first 16 bytes.
	if binary.LittleEndian.Uint64(page) != binary.LittleEndian.Uint64(page[8:]) || !bytes.Equal(page[8:], page[:len(page)-8]) {
		return pattern, false
	}
	return [8]byte(page), true
}

// grow gives a cleared slice of a length, in p's memory if that suffices.
func grow(p []cas.Hint, length int) []cas.Hint {
	if cap(p) < length {
		return make([]cas.Hint, length)
	}
	p = p[:length]
	clear(p)
	return p
}
