package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"flash/cas"
	"flash/cas/pack"
)

// load takes the lock, finds the packs, recovers the open ones and loads the index.
func (s *Store) load(ctx context.Context) error {
	for _, dir := range []string{s.dir, s.packsDir, s.indexDir} {
		if err := s.fs.MkdirAll(dir); err != nil {
			return err
		}
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return err
	}
	if parent := filepath.Dir(s.dir); s.fs.SyncDir(parent) != nil {
		s.log.Warn("the name of the store's folder may not be durable: the folder above can't be synced", "folder", parent)
	}
	var err error
	if s.lock, err = s.fs.Lock(filepath.Join(s.dir, "lock")); err != nil {
		return err
	}
	files, err := s.fs.List(s.packsDir)
	if err != nil {
		return err
	}
	var opened []string
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(s.packsDir, f.Name)
		switch {
		case strings.HasSuffix(f.Name, packSuffix):
			err = s.loadSealed(path, f.Bytes)
		case strings.HasSuffix(f.Name, openSuffix):
			opened = append(opened, path)
		case strings.HasSuffix(f.Name, tmpSuffix):
			err = s.fs.Remove(path)
		case strings.HasSuffix(f.Name, quarantineSuffix):
		default:
			s.log.Warn("a file that is no pack lies among the packs", "file", path)
		}
		if err != nil {
			return err
		}
	}
	for _, path := range opened {
		if err := s.recoverOpen(ctx, path); err != nil {
			return err
		}
	}
	s.continueNewest()
	if err := s.loadRuns(); err != nil {
		return err
	}
	s.indexUncovered(nil)
	return nil
}

// loadSealed adds a sealed pack. One whose ends are damaged is searched for good records.
func (s *Store) loadSealed(path string, size int64) error {
	f, err := s.fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sealed, err := pack.OpenSealed(f, size)
	if errors.Is(err, pack.ErrDamaged) {
		return s.loadDamaged(path, f, size, err)
	} else if err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	if sealed.KeyID != s.keyID {
		return fmt.Errorf("pack %s: key %08x, given %08x: %w", path, sealed.KeyID, s.keyID, ErrWrongKey)
	}
	p := &packFile{id: sealed.ID, created: sealed.Created, path: path, bytes: size}
	p.end.Store(sealed.RecordsEnd)
	p.records.Store(int64(sealed.Trailer.Entries))
	p.plain.Store(sealed.Trailer.PlainBytes)
	p.sealed.Store(true)
	if s.packs.byID(p.id) != nil {
		s.log.Warn("two files are the same pack; the second is not used", "file", path)
		return nil
	}
	s.packs.add(p)
	return nil
}

// loadDamaged keeps what is good of a pack that has lost its header or its footer. It stays as it is on disk: it is
// evidence, and nothing is written to it.
func (s *Store) loadDamaged(path string, f File, size int64, cause error) error {
	s.log.Error("a sealed pack is damaged; its good records are used", "pack", path, "err", cause)
	s.counters.damagedPacks.Add(1)
	p := &packFile{path: path, bytes: size, damage: cause}
	if h, err := readHeader(f, size); err == nil {
		p.id, p.created = h.ID, h.Created
	}
	if p.id == (cas.PackID{}) || s.packs.byID(p.id) != nil {
		if err := s.newPackID(&p.id); err != nil {
			return err
		}
	}
	entries, st, err := scanEntries(f, size)
	if err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	s.addScanned(p, entries, st)
	return nil
}

// readHeader reads the header of a pack of size bytes.
func readHeader(f File, size int64) (pack.Header, error) {
	head := make([]byte, min(size, pack.HeaderBytes))
	if n, err := f.ReadAt(head, 0); n < len(head) {
		return pack.Header{}, fmt.Errorf("read the header: %w", err)
	}
	return pack.ParseHeader(head)
}

// addScanned adds a pack that was searched, with a table of its own.
func (s *Store) addScanned(p *packFile, entries []pack.Entry, st pack.ScanStats) *table {
	p.end.Store(st.End)
	p.records.Store(int64(st.Records))
	p.plain.Store(st.PlainBytes)
	s.packs.add(p)
	t := newTable(p, entries)
	s.index.addTable(t)
	return t
}

// scanEntries lists the good records of a pack.
func scanEntries(f File, size int64) ([]pack.Entry, pack.ScanStats, error) {
	var entries []pack.Entry
	st, err := pack.Scan(f, size, func(r pack.Found) error {
		entries = append(entries, pack.Entry{Hash: r.Hash, Offset: uint32(r.Offset), Bytes: uint32(r.Bytes())})
		return nil
	})
	return entries, st, err
}

// newPackID fills id from the store's source of randomness.
func (s *Store) newPackID(id *cas.PackID) error {
	for *id == (cas.PackID{}) {
		if _, err := io.ReadFull(s.rand, id[:]); err != nil {
			return fmt.Errorf("make a pack id: %w", err)
		}
	}
	return nil
}
