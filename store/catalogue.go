package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// A catalogue sums the notes up: chunks that hold every VM's history, with what no note tells (pins, exit codes, moved
// heads, rules, the ledger's end), and the bundles. One is written before each collection, when many notes have gathered,
// and by Close.

const (
	catalogueKey = "catalogue"

	// catalogueLedger is how many entries of each ledger a catalogue has: it is written again whole when a VM has changed.
	catalogueLedger = 4096
	// catalogueNotes are worth a catalogue.
	catalogueNotes = 1024

	partBytes = 256 << 10
)

// catalogueRecord says where the newest catalogue is.
type catalogueRecord struct {
	commits uint64 // transactions there were with the one that named it
	chunks  []cas.Hash
}

// A value has room for the chunks of 16,000 histories.
func (c *catalogueRecord) encode() []byte {
	p := binary.LittleEndian.AppendUint64(nil, c.commits)
	for _, h := range c.chunks {
		p = append(p, h[:]...)
	}
	return p
}

func getCatalogue(tx *badger.Txn) (c catalogueRecord, err error) {
	p, err := get(tx, []byte(catalogueKey))
	if err != nil || p == nil {
		return c, err
	}
	if len(p) < 8 || (len(p)-8)%len(cas.Hash{}) != 0 {
		return c, fmt.Errorf("record %q of %d bytes: %w", catalogueKey, len(p), ErrFormat)
	}
	c.commits = binary.LittleEndian.Uint64(p)
	for h := range slices.Chunk(p[8:], len(cas.Hash{})) {
		c.chunks = append(c.chunks, cas.Hash(h))
	}
	return c, nil
}

// CatalogueDue tells whether enough was noted since the last catalogue to write another.
func (s *Store) CatalogueDue() bool {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return s.notes.since >= catalogueNotes
}

// tryCatalogue writes one, if that can be: the notes it would sum up stay otherwise.
func (s *Store) tryCatalogue(ctx context.Context) {
	if err := s.WriteCatalogue(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("no catalogue was written to the packs", "err", err)
	}
}

// WriteCatalogue makes the packs tell all that Badger tells of names; a no-op when nothing has changed since the last one.
// A store without names has none.
func (s *Store) WriteCatalogue(ctx context.Context) error {
	changed, err := s.changedSinceCatalogue(ctx)
	if err != nil || !changed {
		return err
	}
	return s.writeCatalogue(ctx)
}

func (s *Store) writeCatalogue(ctx context.Context) error {
	s.cataloguing.Lock()
	defer s.cataloguing.Unlock()
	covers := s.notes.covered() // before anything is read: what is noted later may or may not be in it
	n := s.beginNote()
	defer n.end()
	parts, err := s.catalogueParts(ctx, n, covers)
	if err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	if len(parts) > 0 {
		if _, err := n.put(ctx, parts...); err != nil {
			return fmt.Errorf("catalogue: %w", err)
		}
		if err := s.chunks.Sync(ctx); err != nil {
			return fmt.Errorf("catalogue: sync chunks: %w", err)
		}
	}
	if err := s.nameCatalogue(ctx, n, covers); err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	return nil
}

func (s *Store) changedSinceCatalogue(ctx context.Context) (changed bool, err error) {
	s.write.Lock()
	commits := s.witness.commits
	s.write.Unlock()
	err = s.view(ctx, func(tx *badger.Txn) error {
		c, err := getCatalogue(tx)
		changed = c.commits != commits
		return err
	})
	return changed, err
}

// catalogueParts puts the histories and gives the encoded parts; none of a store without names.
func (s *Store) catalogueParts(ctx context.Context, n *note, covers uint64) ([][]byte, error) {
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	bundles, err := s.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	var parts []manifest.CataloguePart
	size := partBytes
	part := func(bytes int) *manifest.CataloguePart {
		if size += bytes; size > partBytes {
			parts = append(parts, manifest.CataloguePart{Covers: covers, Part: len(parts)})
			size = bytes
		}
		return &parts[len(parts)-1]
	}
	for _, v := range vms {
		p, err := s.encodeHistory(ctx, v.ID)
		if errors.Is(err, ErrNotFound) { // removed since
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("flashvm %s: %w", v.ID, err)
		}
		hashes, err := n.put(ctx, manifest.Pieces(p)...)
		if err != nil {
			return nil, err
		}
		to := part(2 + 32*len(hashes))
		to.VMs = append(to.VMs, hashes)
	}
	for _, b := range bundles {
		to := part(1 + maxNameBytes + 32 + 8)
		to.Bundles = append(to.Bundles, manifest.NamedBundle{Name: b.Name, Snapshot: b.Snapshot, Created: b.Created})
	}
	var encoded [][]byte
	for i := range parts {
		parts[i].Parts = len(parts)
		p, err := n.fill(&manifest.Note{Kind: manifest.NoteCatalogue, Part: parts[i]}).Append(nil)
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, p)
	}
	return encoded, nil
}

// encodeHistory is ExportVM for a catalogue: with the ledger's end only, and without a ledger that is damaged.
func (s *Store) encodeHistory(ctx context.Context, vm string) (p []byte, err error) {
	var h History
	err = s.view(ctx, func(tx *badger.Txn) error {
		h, err = readHistory(tx, vm)
		if errors.Is(err, ErrCorrupt) {
			h.Ledger, err = nil, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	h.TrimLedger(catalogueLedger)
	return h.Append(nil)
}

// nameCatalogue puts the catalogue in the place of the notes it covers.
func (s *Store) nameCatalogue(ctx context.Context, n *note, covers uint64) error {
	for first := true; ; first = false {
		var covered [][]byte
		err := s.update(ctx, func(tx *badger.Txn) error {
			covered = nil
			for _, key := range keysWith(tx, []byte(notePrefix), deleteKeys) {
				if noteOf(key) <= covers {
					covered = append(covered, key)
				}
			}
			for _, key := range covered {
				if err := tx.Delete(key); err != nil {
					return err
				}
			}
			if !first {
				return nil
			}
			c := catalogueRecord{s.witness.commits + 1, n.chunks}
			p := c.encode()
			if len(p) > maxValueBytes {
				return fmt.Errorf("%d chunks are too many to be named", len(c.chunks))
			}
			return tx.Set([]byte(catalogueKey), p)
		})
		if err != nil {
			return err
		}
		s.notes.mu.Lock()
		s.notes.since = max(0, s.notes.since-len(covered))
		s.notes.mu.Unlock()
		if len(covered) < deleteKeys {
			return nil
		}
	}
}
