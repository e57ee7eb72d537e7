package offsite

import (
	"context"
	"errors"
	"fmt"
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

// healFar reads all objects and puts those right that are damaged or missing.
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
	var rest []remote.PackSource
	for _, s := range o.c.Remote.Packs() {
		name := pack.FileName(s.ContentHash)
		if !damaged[name] {
			continue
		}
		stats.Packs++
		healed, err := o.putTwin(ctx, s, stats)
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if !healed {
			rest = append(rest, s)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	p.tell("make packs again", 0, 0)
	return o.remake(ctx, rest, stats)
}

// putTwin puts an object again from the same pack here, if there is a good one.
func (o *Offsite) putTwin(ctx context.Context, s remote.PackSource, stats *cas.RepairStats) (healed bool, err error) {
	hash, bytes, ok := o.c.Packs.PackHash(s.ID)
	if !ok || hash != s.ContentHash {
		return false, nil
	}
	r, err := o.c.Packs.OpenPack(ctx, s.ID)
	if err != nil {
		return false, nil // it has gone since
	}
	entries, err := o.c.Packs.PackEntries(ctx, s.ID)
	if err == nil {
		err = o.c.Remote.Replace(ctx, remote.PackSource{ID: s.ID, ContentHash: hash, Bytes: bytes, Reader: r})
	}
	if errors.Is(err, pack.ErrDamaged) {
		o.c.Log.Warn("a pack is damaged in the bucket and here", "pack", pack.FileName(hash), "err", err)
		return false, nil
	}
	stats.Salvaged += int64(len(entries))
	return err == nil, err
}
