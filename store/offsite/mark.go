package offsite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
)

// marks is what a collection has found to be reached. It only grows: what was reached once in a run stays in that run.
type marks struct {
	o      *Offsite
	walker *store.Walker
	apply  bool
	listed map[cas.PackID]bool // condemned packs: a chunk that is elsewhere too is found there instead

	refs    int
	removed []*refRecord        // tombstones
	pushing map[string]bool     // VMs that leases name
	seen    map[uint64]struct{} // of chunks, 8 bytes of the hash: one that is taken for another only stays longer
	chunks  map[cas.PackID]int  // how many reached chunks each pack is needed for
	named   map[cas.PackID]bool // packs that leases and holds name
	unfound []cas.Hash          // reached, and in no catalogue that has been read yet
}

func (o *Offsite) newMarks(listed map[cas.PackID]bool, apply bool) *marks {
	m := &marks{o: o, apply: apply, listed: listed, seen: map[uint64]struct{}{}, chunks: map[cas.PackID]int{},
		named: map[cas.PackID]bool{}, pushing: map[string]bool{}}
	m.walker = store.NewWalker(o.c.Remote, nil, m.visit)
	return m
}

func seenKey(h cas.Hash) uint64 { return binary.LittleEndian.Uint64(h[:]) }

func (m *marks) visit(h cas.Hash, _ cas.Kind) {
	if _, ok := m.seen[seenKey(h)]; ok {
		return
	}
	m.seen[seenKey(h)] = struct{}{}
	if id, ok := m.packOf(h); ok {
		m.chunks[id]++
	} else {
		m.unfound = append(m.unfound, h)
	}
}

// packOf says which pack a chunk stays in: the newest that isn't condemned, or else the newest.
func (m *marks) packOf(h cas.Hash) (cas.PackID, bool) {
	ids := m.o.c.Remote.PacksOf(h)
	for _, id := range ids {
		if !m.listed[id] {
			return id, true
		}
	}
	if len(ids) == 0 {
		return cas.PackID{}, false
	}
	return ids[0], true
}

func (m *marks) isLive(h cas.Hash) bool {
	_, ok := m.seen[seenKey(h)]
	return ok
}

// reaches tells whether a pack must stay.
func (m *marks) reaches(id cas.PackID) bool { return m.named[id] || m.chunks[id] > 0 }

// read reads all roots there are. The order keeps it safe: what protects something is put before that goes which has
// protected it, so a lease's ref is read after the lease, and a ref's hold after the ref. An error means that the marks are
// not whole, and that nothing may be removed.
func (m *marks) read(ctx context.Context) error {
	if err := m.leases(ctx); err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	refs, err := m.o.readAllRefs(ctx)
	if err != nil {
		return fmt.Errorf("read the refs: %w", err)
	}
	m.refs, m.removed = 0, nil
	for _, r := range refs {
		if r.err != nil {
			return fmt.Errorf("%s can't be read, and what it needs isn't known: %w", r.key, r.err)
		}
		if r.ref.Removed {
			m.removed = append(m.removed, r.ref)
			continue
		}
		m.refs++
		if err := m.snapshots(ctx, r.history.Roots()); err != nil {
			return fmt.Errorf("flashvm %s: %w", r.ref.VM, err)
		}
	}
	if err := m.holds(ctx); err != nil {
		return fmt.Errorf("read the holds: %w", err)
	}
	return nil
}

func (m *marks) snapshots(ctx context.Context, ids []cas.Hash) error {
	for _, id := range ids {
		if err := m.walker.Snapshot(ctx, id); err != nil {
			return err
		}
	}
	if len(m.unfound) == 0 {
		return nil
	}
	// A ref that is newer than the catalogue that was read.
	if err := m.o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	for _, h := range m.unfound {
		id, ok := m.packOf(h)
		if !ok {
			return fmt.Errorf("chunk %s is in no catalogue: %w", h, ErrIncomplete)
		}
		m.chunks[id]++
	}
	m.unfound = nil
	return nil
}

// leases notes what pushes in flight need. A dead one is removed before it is passed over: should its push live after all,
// it learns of that before it moves its ref.
func (m *marks) leases(ctx context.Context) error {
	infos, err := m.o.list(ctx, leasePrefix)
	if err != nil {
		return err
	}
	for _, info := range infos {
		p, version, err := m.o.c.Bucket.Get(ctx, info.Key, maxObjectBytes)
		if errors.Is(err, bucket.ErrNotFound) {
			continue // its push has ended
		}
		if err != nil {
			return err
		}
		if !m.o.watched.alive(info.Key, version, m.o.now()) {
			if !m.apply {
				continue
			}
			if err := m.o.c.Bucket.Delete(ctx, info.Key); err != nil {
				return err
			}
			m.o.watched.forget(info.Key)
			m.o.c.Log.Warn("a push that hasn't been heard of was taken for dead", "lease", info.Key)
			continue
		}
		l, err := decodeLease(p)
		if err != nil {
			return fmt.Errorf("%s: %w", info.Key, err)
		}
		m.pushing[l.VM] = true
		m.name(l.Packs)
	}
	return nil
}

func (m *marks) name(ids []packID) {
	for _, id := range ids {
		m.named[cas.PackID(id)] = true
	}
}

// holds notes what hosts need and haven't.
func (m *marks) holds(ctx context.Context) error {
	infos, err := m.o.list(ctx, holdPrefix)
	if err != nil {
		return err
	}
	for _, info := range infos {
		h, _, err := m.o.readHold(ctx, info.Key)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		m.name(h.Packs)
		if err := m.snapshots(ctx, h.Snapshots); err != nil {
			return fmt.Errorf("flashvm %s of host %s: %w", h.VM, h.HostName, err)
		}
	}
	return nil
}
