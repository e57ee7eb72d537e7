package store

import (
	"context"
	"fmt"
	"iter"

	"flash/cas"
	"flash/store/manifest"
)

// Diff yields the slots in which two images of one length differ, without reading shared subtrees.
func (im *Image) Diff(ctx context.Context, other *Image) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		if im.bytes != other.bytes {
			yield(0, fmt.Errorf("image %s has %d bytes, image %s %d: they can't be compared", im.name, im.bytes, other.name, other.bytes))
			return
		}
		d := differ{ctx, im, yield}
		d.compare(im.level, 0, &im.root, &other.root)
	}
}

type differ struct {
	ctx   context.Context
	im    *Image
	yield func(uint64, error) bool
}

// compare yields what differs under two entries for the same node; false: stop.
func (d *differ) compare(level int, first uint64, a, b *manifest.Entry) bool {
	if a.Equal(b) {
		return true
	}
	if err := d.ctx.Err(); err != nil {
		d.yield(0, err)
		return false
	}
	as, err := d.entries(level, a)
	if err != nil {
		d.yield(0, err)
		return false
	}
	bs, err := d.entries(level, b)
	if err != nil {
		d.yield(0, err)
		return false
	}
	if level == 0 {
		for i := range as {
			if !as[i].Equal(&bs[i]) && first+uint64(i) < d.im.slots && !d.yield(first+uint64(i), nil) {
				return false
			}
		}
		return true
	}
	if err := d.fetch(level-1, as, bs); err != nil {
		d.yield(0, err)
		return false
	}
	for i := range as {
		if !d.compare(level-1, first+uint64(i)*manifest.SlotsUnder(level-1), &as[i], &bs[i]) {
			return false
		}
	}
	return true
}

func (d *differ) entries(level int, e *manifest.Entry) ([]manifest.Entry, error) {
	if e.Tag == manifest.Zero {
		return zeroEntries[:manifest.EntryCount(level)], nil
	}
	n, err := d.im.s.nodes.node(d.ctx, e.Ref(), level)
	if err != nil {
		return nil, fmt.Errorf("compare images %s: %w", d.im.name, err)
	}
	return n.entries, nil
}

var zeroEntries [manifest.InnerEntries]manifest.Entry

// fetch brings the children that differ into the node cache with few reads.
func (d *differ) fetch(level int, as, bs []manifest.Entry) error {
	var refs []cas.Ref
	seen := map[cas.Hash]bool{}
	for i := range as {
		if as[i].Equal(&bs[i]) {
			continue
		}
		for _, e := range []*manifest.Entry{&as[i], &bs[i]} {
			if e.Tag == manifest.Chunk && !seen[e.Hash] {
				seen[e.Hash] = true
				refs = append(refs, e.Ref())
			}
		}
	}
	if _, err := d.im.s.nodes.nodesOf(d.ctx, refs, level); err != nil {
		return fmt.Errorf("compare images %s: %w", d.im.name, err)
	}
	return nil
}
