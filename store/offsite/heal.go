package offsite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store"
)

// Heal puts right what one side has damaged and the other has whole: local packs from the bucket, objects from local packs.
// It reads everything on both sides. Nothing local is mended in place: a damaged file is moved out of the way (as by check
// --repair); an object is put again only with bytes that hash to its name.
//
// In the report, Salvaged counts good records that were copied or brought, LostRecords those that neither side has.
func (o *Offsite) Heal(ctx context.Context, p Progress) (cas.RepairStats, error) {
	stats := cas.RepairStats{Quarantined: []string{}}
	if err := o.healCatalogue(ctx, p); err != nil {
		return stats, o.wrap("heal the catalogue", err)
	}
	if err := o.healNear(ctx, p, &stats); err != nil {
		return stats, o.wrap("heal the packs here", err)
	}
	if err := o.healFar(ctx, p, &stats); err != nil {
		return stats, o.wrap("heal the objects", err)
	}
	return stats, nil
}

// healNear repairs the near tier, and brings back what had no good record here.
func (o *Offsite) healNear(ctx context.Context, p Progress, stats *cas.RepairStats) error {
	p.tell("repair here", 0, 0)
	r, err := o.c.Store.Check(ctx, store.CheckOptions{Repair: true, Progress: p})
	if err != nil && !errors.Is(err, store.ErrNothingChecked) {
		return err
	}
	if r.Repair == nil {
		return nil
	}
	*stats = *r.Repair
	twins := map[string]remote.PackSource{}
	for _, s := range o.c.Remote.Packs() {
		twins[pack.FileName(s.ContentHash)] = s
	}
	brought := map[string]bool{}
	var lost []cas.Hash // chunks of packs that the bucket hasn't
	whole := true       // all that was damaged is there
	for _, f := range r.Findings {
		if f.Pack == "" || brought[f.Pack] {
			continue
		}
		s, ok := twins[f.Pack]
		if !ok {
			whole = whole && !f.Hash.IsZero()
			lost = append(lost, f.Hash)
			continue
		}
		if err := o.importPack(ctx, s, func(int) {}); err != nil {
			return err
		}
		brought[f.Pack] = true
	}
	if stats.LostRecords == 0 {
		return nil
	}
	left, err := o.bringChunks(ctx, lost)
	if err != nil {
		return err
	}
	if !whole {
		return nil // how many of them are still lost isn't known: all that were
	}
	stats.Salvaged += max(0, stats.LostRecords-left)
	stats.LostRecords = left
	return nil
}

// bringChunks brings packs that have chunks which aren't near, and tells how many of them the bucket hasn't either.
func (o *Offsite) bringChunks(ctx context.Context, chunks []cas.Hash) (left int64, err error) {
	chunks = slices.DeleteFunc(chunks, func(h cas.Hash) bool { return h.IsZero() })
	have, err := o.c.Packs.Has(ctx, chunks)
	if err != nil {
		return 0, err
	}
	var there []cas.Hash
	for i, h := range chunks {
		switch {
		case have[i]:
		case o.c.Remote.Has(chunks[i : i+1])[0]:
			there = append(there, h)
		default:
			left++
		}
	}
	packs, err := o.holding(there, nil)
	if err != nil {
		return left, err
	}
	for _, s := range packs {
		if err := o.importPack(ctx, s, func(int) {}); err != nil {
			return left, err
		}
	}
	return left, nil
}

// healFar reads all objects and puts those right that are damaged.
func (o *Offsite) healFar(ctx context.Context, p Progress, stats *cas.RepairStats) error {
	if len(o.c.Remote.Packs()) == 0 {
		return nil
	}
	p.tell("read the bucket", 0, 0)
	damaged := map[string]bool{}
	if _, err := o.c.Remote.Verify(ctx, 1, func(d cas.Damage) { damaged[d.Pack[strings.LastIndexByte(d.Pack, '/')+1:]] = true }); err != nil {
		return err
	}
	if err := o.c.Packs.Seal(ctx); err != nil {
		return err
	}
	byName := map[string]remote.PackSource{}
	for _, s := range o.c.Remote.Packs() {
		byName[pack.FileName(s.ContentHash)] = s
	}
	for _, name := range slices.Sorted(maps.Keys(damaged)) {
		s, ok := byName[name]
		if !ok {
			continue
		}
		stats.Packs++
		if err := o.healObject(ctx, s, stats); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return nil
}

// healObject puts an object again from the same pack here, or makes another pack of what is good of it on either side. The
// damaged one then goes with the next collections, for all it has is in a newer.
func (o *Offsite) healObject(ctx context.Context, s remote.PackSource, stats *cas.RepairStats) error {
	if hash, bytes, ok := o.c.Packs.PackHash(s.ID); ok && hash == s.ContentHash {
		r, err := o.c.Packs.OpenPack(ctx, s.ID)
		if err == nil {
			err = checkPack(r, bytes, hash)
		}
		if err == nil {
			entries, err := o.c.Packs.PackEntries(ctx, s.ID)
			if err != nil {
				return err
			}
			stats.Salvaged += int64(len(entries))
			return o.c.Remote.Replace(ctx, remote.PackSource{ID: s.ID, ContentHash: hash, Bytes: bytes, Reader: r})
		}
		o.c.Log.Warn("a pack is damaged in the bucket and here", "pack", pack.FileName(hash), "err", err)
	}
	entries, err := o.c.Remote.PackEntries(ctx, s.ID)
	if err != nil {
		o.c.Log.Error("what a damaged pack had isn't known any more: push from a host that has it", "pack", pack.FileName(s.ContentHash), "err", err)
		stats.LostRecords++
		return nil
	}
	c := compaction{o: o}
	for _, e := range entries {
		record, from, err := o.goodRecord(ctx, s, e)
		if err != nil {
			return err
		}
		if record == nil {
			stats.LostRecords++
			continue
		}
		c.newerThan(from)
		if err := c.add(ctx, record, e.Hash); err != nil {
			return err
		}
		stats.Salvaged++
	}
	return c.finish(ctx)
}

// checkPack reads a whole pack and compares its content hash.
func checkPack(r io.ReaderAt, bytes int64, want cas.Hash) error {
	sealed, err := pack.OpenSealed(r, bytes)
	if err != nil {
		return err
	}
	if sealed.ContentHash != want {
		return fmt.Errorf("its content hash is %s: %w", sealed.ContentHash, pack.ErrDamaged)
	}
	return sealed.CheckContent()
}

// goodRecord gives a chunk's record from a damaged object, or else from a pack here, and the object's header; nil: neither
// has a good one.
func (o *Offsite) goodRecord(ctx context.Context, s remote.PackSource, e pack.Entry) ([]byte, pack.Header, error) {
	decoder := pack.NewDecoder(o.c.Packs.Hasher())
	good := func(r io.ReaderAt, e pack.Entry) []byte {
		p := make([]byte, e.Bytes)
		if n, err := r.ReadAt(p, int64(e.Offset)); n < len(p) && err != nil {
			return nil
		}
		if _, got, err := decoder.AppendPlain(nil, p); err != nil || got.Hash != e.Hash {
			return nil
		}
		return p
	}
	sealed, err := pack.OpenSealed(s.Reader, s.Bytes)
	if err != nil {
		return nil, pack.Header{}, err
	}
	if p := good(s.Reader, e); p != nil {
		return p, sealed.Header, nil
	}
	id, ok := o.c.Packs.PackOf(e.Hash)
	if !ok {
		return nil, pack.Header{}, ctx.Err()
	}
	entries, err := o.c.Packs.PackEntries(ctx, id)
	if err != nil {
		return nil, pack.Header{}, err
	}
	r, err := o.c.Packs.OpenPack(ctx, id)
	if err != nil {
		return nil, pack.Header{}, err
	}
	for _, here := range entries {
		if here.Hash == e.Hash {
			return good(r, here), sealed.Header, nil
		}
	}
	return nil, pack.Header{}, nil
}
