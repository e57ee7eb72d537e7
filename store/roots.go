package store

import (
	"context"
	"iter"
	"slices"
	"sync"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// pin makes a snapshot a root until release is called; calling it again is harmless.
func (s *Store) pin(id SnapshotID) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[id]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pins[id]--; s.pins[id] == 0 {
			delete(s.pins, id)
		}
	})
}

// publication is what one put has stored, or found, that no image of its Txn reaches yet. Chunks are entered before
// they are put: gc must know of them before the first is found to exist already (I4).
//
// For a finished batch only its new leaves are remembered, so an image of any size costs little: 32 bytes a leaf.
type publication struct {
	mu     sync.Mutex // guards the rest
	chunks map[*batch][]cas.Hash
	leaves []cas.Hash // stored, so they can be walked
	inner  []cas.Hash // all they reach is below leaves, or the parent's
}

func (p *publication) addChunks(b *batch, hs []cas.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chunks == nil {
		p.chunks = map[*batch][]cas.Hash{}
	}
	p.chunks[b] = append(p.chunks[b], hs...)
}

// settle says that the batch's leaves are stored.
func (p *publication) settle(b *batch, leaves []cas.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.chunks, b)
	p.leaves = append(p.leaves, leaves...)
}

func (p *publication) addInner(h cas.Hash) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner = append(p.inner, h)
}

// rootSet is what gc starts from.
type rootSet struct {
	snapshots map[SnapshotID]struct{}
	plain     []cas.Hash       // chunks without anything below them that isn't a root itself
	leaves    []cas.Hash       // leaves of images in the making
	images    []manifest.Image // of open transactions
}

// Roots yields the snapshots that must stay: of checkpoints, of bundles, of what VMs boot from, of open transactions
// (what they descend from), and those pinned. In the making, and so only seen by Mark, are the images of open transactions.
func (s *Store) Roots(ctx context.Context) iter.Seq2[SnapshotID, error] {
	return func(yield func(SnapshotID, error) bool) {
		roots, err := s.roots(ctx, nil)
		if err != nil {
			yield(SnapshotID{}, err)
			return
		}
		for id := range roots.snapshots {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// roots collects what is in memory before and after what is in Badger: a transaction that commits meanwhile is seen in
// one of them, and so is a pin that is set on what is then deleted. Checkpoints in without are passed over.
func (s *Store) roots(ctx context.Context, without map[string]map[int]bool) (*rootSet, error) {
	roots := &rootSet{snapshots: map[SnapshotID]struct{}{}}
	s.rootsInMemory(roots)
	err := s.view(ctx, func(tx *badger.Txn) error {
		err := scan(tx, []byte(bundlePrefix), func(key, value []byte) error {
			var r bundleRecord
			err := decodeJSON(key, value, &r)
			roots.snapshots[SnapshotID(r.Snapshot)] = struct{}{}
			return err
		})
		if err != nil {
			return err
		}
		err = scan(tx, []byte(vmPrefix), func(key, value []byte) error {
			var r vmRecord
			err := decodeJSON(key, value, &r)
			if r.Bundle != (hexHash{}) {
				roots.snapshots[SnapshotID(r.Bundle)] = struct{}{}
			}
			return err
		})
		if err != nil {
			return err
		}
		err = scan(tx, []byte(historyPrefix), func(key, value []byte) error {
			vm, n, err := checkpointOf(key)
			if err != nil || without[vm][n] {
				return err
			}
			var r checkpointRecord
			err = decodeJSON(key, value, &r)
			roots.snapshots[SnapshotID(r.Snapshot)] = struct{}{}
			return err
		})
		if err != nil {
			return err
		}
		return noteRoots(tx, roots)
	})
	s.rootsInMemory(roots)
	return roots, err
}

func (s *Store) rootsInMemory(roots *rootSet) {
	s.notes.addRoots(roots)
	s.mu.Lock()
	var txns []*Txn
	for t := range s.txns {
		txns = append(txns, t)
	}
	for id := range s.pins {
		roots.snapshots[id] = struct{}{}
	}
	s.mu.Unlock()
	for _, t := range txns {
		t.addRoots(roots)
	}
}

func (t *Txn) addRoots(roots *rootSet) {
	t.mu.Lock()
	var pubs []*publication
	for p := range t.loose {
		pubs = append(pubs, p)
	}
	for _, im := range t.images {
		if im != nil {
			roots.images = append(roots.images, *im)
		}
	}
	roots.plain = append(roots.plain, t.records...)
	t.mu.Unlock()
	for _, p := range pubs {
		p.mu.Lock()
		for _, hs := range p.chunks {
			roots.plain = append(roots.plain, hs...)
		}
		roots.plain = append(roots.plain, p.inner...)
		roots.leaves = append(roots.leaves, slices.Clone(p.leaves)...)
		p.mu.Unlock()
	}
}
