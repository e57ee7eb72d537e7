package store

import (
	"context"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// innerNode is the one node of a level that is being put together; changes come in ascending order, so one is enough.
type innerNode struct {
	position uint64 // counted in nodes of its level
	old      place
	entries  []manifest.Entry
}

// replace sets the entry of the node at level-1 and position in its parent, or the root.
func (w *imageWriter) replace(ctx context.Context, level int, position uint64, e manifest.Entry) error {
	if level > w.level {
		w.root = e
		return nil
	}
	parent := position / manifest.InnerEntries
	if n := w.inner[level]; n != nil && n.position != parent {
		if err := w.close(ctx, level); err != nil {
			return err
		}
	}
	if w.inner[level] == nil {
		old, err := w.old.nodeAt(ctx, level, parent)
		if err != nil {
			return fmt.Errorf("parent: %w", err)
		}
		n := &innerNode{position: parent, old: old, entries: make([]manifest.Entry, manifest.InnerEntries)}
		if w.carry && old.node != nil {
			copy(n.entries, old.node.entries)
		}
		w.inner[level] = n
	}
	w.inner[level].entries[position%manifest.InnerEntries] = e
	return nil
}

// close stores the open node of a level and hands its entry up.
func (w *imageWriter) close(ctx context.Context, level int) error {
	open := w.inner[level]
	w.inner[level] = nil
	n := &node{level: level, entries: open.entries}
	v, err := w.s.encode(ctx, nil, n, open.old)
	if err != nil {
		return err
	}
	e := v.entry
	if v.named > 0 {
		c := cas.Chunk{Hash: w.s.chunks.Hasher().Sum(v.out[:v.named]), Kind: cas.KindNode, Named: v.named, Data: v.out}
		w.pub.addInner(c.Hash)
		var hint [1]cas.Hint
		stats, err := w.s.chunks.Put(ctx, []cas.Chunk{c}, hint[:])
		w.stats.PutStats = w.stats.PutStats.Add(stats)
		if err != nil {
			return fmt.Errorf("node of level %d: %w", level, err)
		}
		w.s.nodes.cache.add(c.Hash, n)
		e = manifest.ChunkEntry(cas.Ref{Hash: c.Hash, Hint: hint[0]})
	}
	return w.replace(ctx, level+1, open.position, e)
}

// closeAll stores what is still open, from the leaves' parents up to the root.
func (w *imageWriter) closeAll(ctx context.Context) error {
	for level := 1; level <= w.level; level++ {
		if w.inner[level] == nil {
			continue
		}
		if err := w.close(ctx, level); err != nil {
			return err
		}
	}
	return nil
}

// verdict says how a node is to be stored.
type verdict struct {
	out       []byte         // dst and, if named > 0, the encoded node behind it
	named     int            // canonical bytes of the encoded node; 0: nothing need be stored, entry says what it is
	entry     manifest.Entry // if named is 0
	unchanged bool           // entry is the old one
}

// encode decides whether a node is nothing new, a patch of the full node that old is or is a patch of, or full.
// It sets n.base accordingly.
func (s *Store) encode(ctx context.Context, dst []byte, n *node, old place) (verdict, error) {
	held := 0
	for i := range n.entries {
		if n.entries[i].Tag != manifest.Zero {
			held++
		}
	}
	switch {
	case held == 0:
		return verdict{out: dst, unchanged: old.node == nil}, nil
	case old.node == nil:
		out, named := manifest.AppendFull(dst, n.level, n.entries)
		return verdict{out: out, named: named}, nil
	}
	changed := countChanged(old.node.entries, n.entries)
	if changed == 0 {
		return verdict{out: dst, entry: manifest.ChunkEntry(old.ref), unchanged: true}, nil
	}
	base := old
	if old.node.isPatch() {
		base.ref = old.node.base
		var err error
		if base.node, err = s.nodes.node(ctx, base.ref, n.level); err != nil {
			return verdict{}, err
		}
		if base.node.isPatch() {
			return verdict{}, fmt.Errorf("node %s is a patch and the base of another: %w", base.ref.Hash, ErrFormat)
		}
	}
	index, entries := changes(base.node.entries, n.entries)
	if len(index) == 0 {
		return verdict{out: dst, entry: manifest.ChunkEntry(base.ref)}, nil
	}
	if !patchPays(len(index), changed, held) {
		out, named := manifest.AppendFull(dst, n.level, n.entries)
		return verdict{out: out, named: named}, nil
	}
	n.base = base.ref
	out, named := manifest.AppendPatch(dst, n.level, base.ref, index, entries)
	return verdict{out: out, named: named}, nil
}

// patchPays decides between a patch and a full node. A patch repeats what changed since its base, so with changed new
// entries each time patches of changed, 2·changed, 3·changed … entries are written until one full node of held entries
// ends the row. The total is least when that happens at √(2·changed·held) entries; entries that change again and again
// don't grow the patch and only delay it. See BenchmarkMetadata for what it costs.
func patchPays(patched, changed, held int) bool {
	return patched*patched <= 2*changed*held && patched <= held/2
}

func countChanged(a, b []manifest.Entry) (count int) {
	for i := range a {
		if !a[i].Equal(&b[i]) {
			count++
		}
	}
	return count
}

// changes lists where b differs from a, and what it has there.
func changes(a, b []manifest.Entry) (index []uint8, entries []manifest.Entry) {
	for i := range a {
		if !a[i].Equal(&b[i]) {
			index, entries = append(index, uint8(i)), append(entries, b[i])
		}
	}
	return index, entries
}
