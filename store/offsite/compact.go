package offsite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
)

const (
	// compactBelow: a pack of which a smaller part is reached is worth a copy of that. As in the near tier.
	compactBelow = 0.25
	// compactBudget is the most a collection reads for it.
	compactBudget = 512 << 20
	madePackBytes = 32 << 20
	runGap        = 64 << 10 // so much that isn't wanted is read along rather than asked around
	runBytes      = 4 << 20
)

// compact copies what is reached of packs of which little is into new ones. The old ones are condemned by the next
// collection: what they have is then found in the newer.
func (o *Offsite) compact(ctx context.Context, m *marks, listed map[cas.PackID]bool, r *GCReport) error {
	c := compaction{o: o, m: m}
	read := int64(0)
	for _, p := range o.c.Remote.Packs() {
		n := m.chunks[p.ID]
		// A chunk's record is half a page long by and by: a first guess, before the pack's entries are read.
		if n == 0 || listed[p.ID] || m.named[p.ID] || float64(n)*cas.SlotBytes/4 > compactBelow*float64(p.Bytes) {
			continue
		}
		live, bytes, err := c.live(ctx, p)
		if err != nil {
			return err
		}
		if float64(bytes) > compactBelow*float64(p.Bytes) || read+bytes > compactBudget {
			continue
		}
		read += bytes
		if err := c.copy(ctx, p, live); err != nil {
			if errors.Is(err, pack.ErrDamaged) {
				o.c.Log.Error("a pack in the bucket is damaged and can't be compacted", "pack", pack.FileName(p.ContentHash), "err", err)
				continue
			}
			return err
		}
		r.Compacted++
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	r.WrittenBytes = c.written
	return nil
}

type compaction struct {
	o       *Offsite
	m       *marks
	builder *pack.Builder
	buffer  *bytes.Buffer
	id      cas.PackID
	created time.Time
	written int64
}

// live gives the records of a pack that are needed there, by offset.
func (c *compaction) live(ctx context.Context, p remote.PackSource) (live []pack.Entry, bytes int64, err error) {
	entries, err := c.o.c.Remote.PackEntries(ctx, p.ID)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if id, ok := c.m.packOf(e.Hash); ok && id == p.ID && c.m.isLive(e.Hash) {
			live = append(live, e)
			bytes += int64(e.Bytes)
		}
	}
	slices.SortFunc(live, func(a, b pack.Entry) int { return int(int64(a.Offset) - int64(b.Offset)) })
	return live, bytes, nil
}

// copy adds records to the pack that is being made. A damaged one ends it: what was copied so far harms nobody.
func (c *compaction) copy(ctx context.Context, p remote.PackSource, live []pack.Entry) error {
	sealed, err := pack.OpenSealed(p.Reader, p.Bytes)
	if err != nil {
		return err
	}
	decoder := pack.NewDecoder(c.o.c.Packs.Hasher())
	for len(live) > 0 {
		run := 1
		end := int64(live[0].Offset) + int64(live[0].Bytes)
		for ; run < len(live); run++ {
			next := live[run]
			if int64(next.Offset)-end > runGap || int64(next.Offset)+int64(next.Bytes)-int64(live[0].Offset) > runBytes {
				break
			}
			end = int64(next.Offset) + int64(next.Bytes)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		buf := make([]byte, end-int64(live[0].Offset))
		if _, err := p.Reader.ReadAt(buf, int64(live[0].Offset)); err != nil {
			return err
		}
		for _, e := range live[:run] {
			record := buf[e.Offset-live[0].Offset:][:e.Bytes]
			if _, got, err := decoder.AppendPlain(nil, record); err != nil || got.Hash != e.Hash {
				return errors.Join(fmt.Errorf("record %s at offset %d: %w", e.Hash, e.Offset, pack.ErrDamaged), err)
			}
			if err := c.add(ctx, sealed.Header, record, e.Hash); err != nil {
				return err
			}
		}
		live = live[run:]
	}
	return nil
}

// add adds a record of a pack to the one that is being made, which is newer: the newest pack that has a chunk is where it
// stays, whatever the clocks of those who made them.
func (c *compaction) add(ctx context.Context, from pack.Header, record []byte, h cas.Hash) error {
	if c.builder != nil && (c.builder.Bytes()+int64(len(record)) > madePackBytes || !c.created.After(from.Created)) {
		if err := c.finish(ctx); err != nil {
			return err
		}
	}
	if c.builder == nil {
		c.o.random(c.id[:])
		if c.created = c.o.now(); !c.created.After(from.Created) {
			c.created = from.Created.Add(1)
		}
		c.buffer = &bytes.Buffer{}
		c.builder = pack.NewBuilder(c.buffer, pack.Header{ID: c.id, KeyID: from.KeyID, Created: c.created})
	}
	if c.builder.Has(h) {
		return nil
	}
	_, err := c.builder.Add(record)
	return err
}

// finish uploads the pack that is being made.
func (c *compaction) finish(ctx context.Context) error {
	if c.builder == nil {
		return nil
	}
	entries, t, err := c.builder.Finish()
	if err != nil {
		return err
	}
	s := remote.PackSource{ID: c.id, ContentHash: t.ContentHash, Bytes: t.Bytes(), Reader: bytes.NewReader(c.buffer.Bytes()), Entries: entries}
	stats, err := c.o.c.Remote.Upload(ctx, []remote.PackSource{s}, nil)
	c.written += stats.NewBytes
	c.builder, c.buffer = nil, nil
	return err
}
