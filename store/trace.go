package store

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// tracer walks whole snapshots and says which of some chunks each reaches. Every node is read once, however many
// snapshots share it.
type tracer struct {
	nodeReader
	ctx context.Context
	// has tells which data chunks are there; nil: nobody asks.
	has func(ctx context.Context, hs []cas.Hash) ([]bool, error)
	// missed is called once for each node that can't be read and each data chunk that isn't there; it gives the mark that
	// everything above gets.
	missed func(h cas.Hash, err error) int

	wanted  map[cas.Hash]int      // chunk → its mark
	clean   map[cas.Hash]struct{} // nodes below which nothing wanted is
	tainted map[cas.Hash][]int    // nodes below which something is → the marks
	data    int64                 // data chunks looked at
}

func newTracer(ctx context.Context, from ChunkReader) *tracer {
	// With a cache of its own, so that the nodes of running VMs stay in the other.
	return &tracer{nodeReader: nodeReader{from, newNodeCache(markCacheBytes)}, ctx: ctx,
		wanted: map[cas.Hash]int{}, clean: map[cas.Hash]struct{}{}, tainted: map[cas.Hash][]int{}}
}

// marks is a small set.
type marks []int

func (m *marks) add(more ...int) {
next:
	for _, k := range more {
		for _, have := range *m {
			if have == k {
				continue next
			}
		}
		*m = append(*m, k)
	}
}

// image gives the marks below an image.
func (t *tracer) image(im manifest.Image) (marks, error) {
	if im.Root.Hash.IsZero() {
		return nil, nil
	}
	return t.node(im.Root, manifest.RootLevel(manifest.SlotCount(im.Bytes)))
}

// known tells what an earlier visit found.
func (t *tracer) known(h cas.Hash) (marks, bool) {
	if _, ok := t.clean[h]; ok {
		return nil, true
	}
	m, ok := t.tainted[h]
	return m, ok
}

func (t *tracer) node(ref cas.Ref, level int) (marks, error) {
	if m, ok := t.known(ref.Hash); ok {
		return m, nil
	}
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	var found marks
	if k, ok := t.wanted[ref.Hash]; ok {
		found.add(k)
	}
	n, err := t.nodeReader.node(t.ctx, ref, level)
	switch {
	case t.ctx.Err() != nil:
		return nil, t.ctx.Err()
	case err != nil:
		if t.missed == nil || errors.Is(err, cas.ErrUnavailable) { // what can't be asked for isn't missing
			return nil, err
		}
		found.add(t.missed(culprit(ref.Hash, err), err))
	default:
		if n.isPatch() {
			if k, ok := t.wanted[n.base.Hash]; ok {
				found.add(k)
			}
		}
		if level == 0 {
			err = t.leaf(n, &found)
		} else {
			err = t.inner(n, &found)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		t.clean[ref.Hash] = struct{}{}
	} else {
		t.tainted[ref.Hash] = found
	}
	return found, nil
}

// culprit is the chunk an error is about: a node's own, or its base's.
func culprit(h cas.Hash, err error) cas.Hash {
	var corrupt *cas.CorruptError
	if errors.As(err, &corrupt) {
		return corrupt.Hash
	}
	return h
}

func (t *tracer) leaf(n *node, found *marks) error {
	var hs []cas.Hash
	for i := range n.entries {
		e := &n.entries[i]
		if e.Tag != manifest.Chunk {
			continue
		}
		if k, ok := t.wanted[e.Hash]; ok {
			found.add(k)
			continue
		}
		hs = append(hs, e.Hash)
	}
	t.data += int64(len(hs))
	if t.has == nil || len(hs) == 0 {
		return nil
	}
	present, err := t.has(t.ctx, hs)
	if err != nil {
		return fmt.Errorf("ask for %d chunks: %w", len(hs), err)
	}
	for i, ok := range present {
		if !ok {
			found.add(t.missed(hs[i], cas.ErrNotFound))
		}
	}
	return nil
}

func (t *tracer) inner(n *node, found *marks) error {
	var refs []cas.Ref
	seen := map[cas.Hash]bool{}
	for i := range n.entries {
		if e := &n.entries[i]; e.Tag == manifest.Chunk && !seen[e.Hash] {
			seen[e.Hash] = true
			if m, ok := t.known(e.Hash); ok {
				found.add(m...)
				continue
			}
			refs = append(refs, e.Ref())
		}
	}
	// With few reads. Should any of them fail, they are read one by one below, and it is told which.
	_, _ = t.nodesOf(t.ctx, refs, n.level-1)
	for _, ref := range refs {
		m, err := t.node(ref, n.level-1)
		if err != nil {
			return err
		}
		found.add(m...)
	}
	return nil
}
