package offsite

import (
	"context"
	"fmt"
	"io"
	"slices"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
	"flash/store"
)

// remake makes new packs of what is good of damaged ones, on either side, and then takes the damaged ones out of the bucket.
func (o *Offsite) remake(ctx context.Context, damaged []remote.PackSource, stats *cas.RepairStats) error {
	c, err := o.beginCollection(ctx) // nobody else removes catalogues or packs meanwhile
	if err != nil {
		return err
	}
	defer c.end()
	ids := map[cas.PackID]bool{}
	for _, s := range damaged {
		ids[s.ID] = true
	}
	r := remaker{o: o, decoder: pack.NewDecoder(o.c.Packs.Hasher()), damaged: ids, compaction: compaction{o: o}}
	r.newerThan(pack.Header{})
	var gone []cas.PackID
	for _, s := range damaged {
		if err := r.pack(c.ctx, s, stats); err != nil {
			return c.blame(fmt.Errorf("pack %s: %w", pack.FileName(s.ContentHash), err))
		}
		gone = append(gone, s.ID)
	}
	if err := r.finish(c.ctx); err != nil {
		return c.blame(err)
	}
	_, err = o.c.Remote.Drop(c.ctx, gone)
	return c.blame(err)
}

type remaker struct {
	compaction
	o       *Offsite
	decoder *pack.Decoder
	damaged map[cas.PackID]bool
	reached []cas.Hash // by the refs; nil: not known yet
	nearID  cas.PackID // of the pack here that was read last
	nearAt  map[cas.Hash]pack.Entry
}

// pack copies what is good of one. Where its own list is unreadable, what it had is what the refs reach and no other pack has.
func (r *remaker) pack(ctx context.Context, s remote.PackSource, stats *cas.RepairStats) error {
	sealed, err := pack.OpenSealed(s.Reader, s.Bytes)
	var entries []pack.Entry
	if err == nil {
		r.newerThan(sealed.Header)
		entries, err = sealed.Entries()
	}
	if isDamage(err) {
		sealed = nil
		entries, err = r.missing(ctx, s.ID)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		var record []byte
		if sealed != nil {
			record = r.good(s.Reader, e)
		}
		if record == nil {
			if record, err = r.near(ctx, e.Hash); err != nil {
				return err
			}
		}
		if record == nil && slices.ContainsFunc(r.o.c.Remote.PacksOf(e.Hash), func(id cas.PackID) bool { return !r.damaged[id] }) {
			continue
		}
		if record == nil {
			stats.LostRecords++
			r.o.c.Log.Error("a chunk has no good record, in the bucket or here", "chunk", e.Hash)
			continue
		}
		if err := r.add(ctx, record, e.Hash); err != nil {
			return err
		}
		stats.Salvaged++
	}
	return nil
}

// missing gives what the refs reach and only damaged packs have, this one among them.
func (r *remaker) missing(ctx context.Context, id cas.PackID) ([]pack.Entry, error) {
	if r.reached == nil {
		refs, err := r.o.readRefs(ctx)
		if err != nil {
			return nil, err
		}
		c := newCollect()
		w := store.NewWalker(r.o.layered(), nil, c.visit)
		for _, ref := range refs {
			if ref.err != nil {
				continue
			}
			for _, root := range ref.history.Roots() {
				if err := w.Snapshot(ctx, root); err != nil {
					return nil, fmt.Errorf("flashvm %s, whose tree is neither here nor there: push it from a host that has it: %w", ref.ref.VM, err)
				}
			}
		}
		r.reached = c.take()
	}
	var entries []pack.Entry
	for _, h := range r.reached {
		ids := r.o.c.Remote.PacksOf(h)
		if slices.Contains(ids, id) && !slices.ContainsFunc(ids, func(id cas.PackID) bool { return !r.damaged[id] }) {
			entries = append(entries, pack.Entry{Hash: h})
		}
	}
	return entries, nil
}

// good reads a record; nil: it isn't.
func (r *remaker) good(from io.ReaderAt, e pack.Entry) []byte {
	p := make([]byte, e.Bytes)
	if n, err := from.ReadAt(p, int64(e.Offset)); n < len(p) && err != nil {
		return nil
	}
	if _, got, err := r.decoder.AppendPlain(nil, p); err != nil || got.Hash != e.Hash {
		return nil
	}
	return p
}

// near gives a chunk's record from a pack here; nil: there is no good one.
func (r *remaker) near(ctx context.Context, h cas.Hash) ([]byte, error) {
	id, ok := r.o.c.Packs.PackOf(h)
	if !ok {
		return nil, nil
	}
	from, err := r.o.c.Packs.OpenPack(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.nearID != id {
		sealed, err := pack.OpenSealed(from, from.Size())
		if err != nil {
			return nil, err
		}
		entries, err := sealed.Entries()
		if err != nil {
			return nil, err
		}
		r.nearID, r.keyID, r.nearAt = id, sealed.KeyID, map[cas.Hash]pack.Entry{}
		for _, e := range entries {
			r.nearAt[e.Hash] = e
		}
	}
	return r.good(from, r.nearAt[h]), nil
}
