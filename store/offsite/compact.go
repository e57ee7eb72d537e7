package offsite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
	"flash/cas/remote"
)

const (
	// compactBelow: a pack of which a smaller part is reached is worth a copy of that. As in the near tier.
	compactBelow = 0.25
	// Small packs are put together when there are so many: replication makes one of every checkpoint.
	smallPackBytes = 1 << 20
	manySmall      = 16
	// compactBudget is the most a collection reads for it.
	compactBudget = 512 << 20
	madePackBytes = 32 << 20
	runGap        = 64 << 10 // so much that isn't wanted is read along rather than asked around
	runBytes      = 4 << 20
)

// compact copies what is reached of packs of which little is, and of many small ones, into new ones. The old ones are
// condemned by the next collection: what they have is then found in the newer.
func (o *Offsite) compact(ctx context.Context, m *marks, listed map[cas.PackID]bool, r *GCReport) error {
	c := compaction{o: o}
	sources, err := o.worthCompacting(ctx, m, listed)
	if err != nil {
		return err
	}
	for _, s := range sources {
		c.newerThan(s.sealed.Header)
	}
	for _, s := range sources {
		err := c.copy(ctx, s)
		if isDamage(err) { // what was copied so far harms nobody
			o.c.Log.Error("a pack in the bucket is damaged and can't be compacted", "pack", pack.FileName(s.ContentHash), "err", err)
			continue
		}
		if err != nil {
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

func isDamage(err error) bool {
	return errors.Is(err, pack.ErrDamaged) || errors.Is(err, bucket.ErrNotFound) || errors.Is(err, bucket.ErrIntegrity) || errors.Is(err, bucket.ErrShort)
}

// compactSource is a pack that is worth it, and its records that are needed there, by offset.
type compactSource struct {
	remote.PackSource
	sealed *pack.Sealed
	live   []pack.Entry
}

// worthCompacting chooses packs within the budget.
func (o *Offsite) worthCompacting(ctx context.Context, m *marks, listed map[cas.PackID]bool) (chosen []compactSource, err error) {
	packs := slices.DeleteFunc(o.c.Remote.Packs(), func(p remote.PackSource) bool { return m.chunks[p.ID] == 0 || listed[p.ID] || m.named[p.ID] })
	small, total := 0, int64(0)
	for _, p := range packs {
		if p.Bytes < smallPackBytes {
			small++
		}
	}
	for _, p := range packs {
		goes := small >= manySmall && p.Bytes < smallPackBytes
		// A chunk's record is half a page long by and by: a first guess, before the pack's entries are read.
		if !goes && float64(m.chunks[p.ID])*cas.SlotBytes/4 > compactBelow*float64(p.Bytes) {
			continue
		}
		s := compactSource{PackSource: p}
		var entries []pack.Entry
		if s.sealed, err = pack.OpenSealed(p.Reader, p.Bytes); err == nil {
			entries, err = s.sealed.Entries()
		}
		if isDamage(err) {
			o.c.Log.Error("a pack in the bucket is damaged", "pack", pack.FileName(p.ContentHash), "err", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		bytes := int64(0)
		for _, e := range entries {
			if id, ok := m.packOf(e.Hash); ok && id == p.ID && m.isLive(e.Hash) {
				s.live = append(s.live, e)
				bytes += int64(e.Bytes)
			}
		}
		if !goes && float64(bytes) > compactBelow*float64(p.Bytes) || total+bytes > compactBudget {
			continue
		}
		total += bytes
		slices.SortFunc(s.live, func(a, b pack.Entry) int { return cmp.Compare(a.Offset, b.Offset) })
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// compaction makes packs of other packs' records.
type compaction struct {
	o       *Offsite
	created time.Time // of the packs that are made
	keyID   uint32
	builder *pack.Builder
	buffer  *bytes.Buffer
	id      cas.PackID
	written int64
}

// newerThan is said of every pack that something is taken from, before anything is: the newest pack that has a chunk is
// where it stays, whatever the clocks of those who made them.
func (c *compaction) newerThan(h pack.Header) {
	if c.created.IsZero() {
		c.created = c.o.now()
	}
	if !c.created.After(h.Created) {
		c.created = h.Created.Add(1)
	}
	c.keyID = h.KeyID
}

// copy adds the records of a pack to the one that is being made.
func (c *compaction) copy(ctx context.Context, s compactSource) error {
	decoder := pack.NewDecoder(c.o.c.Packs.Hasher())
	for live := s.live; len(live) > 0; {
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
		if _, err := s.Reader.ReadAt(buf, int64(live[0].Offset)); err != nil {
			return err
		}
		for _, e := range live[:run] {
			record := buf[e.Offset-live[0].Offset:][:e.Bytes]
			if _, got, err := decoder.AppendPlain(nil, record); err != nil || got.Hash != e.Hash {
				return errors.Join(fmt.Errorf("record %s at offset %d: %w", e.Hash, e.Offset, pack.ErrDamaged), err)
			}
			if err := c.add(ctx, record, e.Hash); err != nil {
				return err
			}
		}
		live = live[run:]
	}
	return nil
}

// add adds a record to the pack that is being made, and uploads that when it is full.
func (c *compaction) add(ctx context.Context, record []byte, h cas.Hash) error {
	if c.builder != nil && c.builder.Bytes()+int64(len(record)) > madePackBytes {
		if err := c.finish(ctx); err != nil {
			return err
		}
	}
	if c.builder == nil {
		c.o.random(c.id[:])
		c.buffer = &bytes.Buffer{}
		c.builder = pack.NewBuilder(c.buffer, pack.Header{ID: c.id, KeyID: c.keyID, Created: c.created})
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
