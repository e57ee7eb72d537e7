package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
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
	p := &packFile{path: path, bytes: size}
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

// recoverOpen copies the good records of a pack that was not sealed, and adds the copy as a rotated pack.
func (s *Store) recoverOpen(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	old, err := s.fs.Open(path)
	if err != nil {
		return err
	}
	size, err := old.Size()
	if err != nil {
		old.Close()
		return err
	}
	h, headerErr := readHeader(old, size)
	if headerErr != nil && !errors.Is(headerErr, pack.ErrDamaged) {
		old.Close()
		return fmt.Errorf("pack %s: %w", path, headerErr)
	}
	_, st, err := scanEntries(old, size)
	if err != nil {
		old.Close()
		return fmt.Errorf("pack %s: %w", path, err)
	}
	if st.Records == 0 { // the power went before the first Sync, or nothing was put
		old.Close()
		return s.fs.Remove(path)
	}
	if st.DamagedBytes > 0 {
		s.log.Error("an open pack is damaged among its records; the good ones are used", "pack", path,
			"good_records", st.Records, "damaged_bytes", st.DamagedBytes)
		s.counters.damagedPacks.Add(1)
	}
	if headerErr != nil {
		s.log.Error("an open pack has lost its header; its good records are used", "pack", path, "err", headerErr)
		h = pack.Header{KeyID: s.keyID, Created: s.now().UTC()}
		if err := s.newPackID(&h.ID); err != nil {
			old.Close()
			return err
		}
	}
	if h.KeyID != s.keyID {
		old.Close()
		return fmt.Errorf("pack %s: key %08x, given %08x: %w", path, h.KeyID, s.keyID, ErrWrongKey)
	}
	if s.packs.byID(h.ID) != nil { // it was sealed, and the power went before the old name was gone
		old.Close()
		return s.fs.Remove(path)
	}
	return s.adoptOpen(old, path, size, h)
}

// adoptOpen adds the recovered pack: the copy, or, when there is no room for one, the old file to read from. It is
// then suspect, and Sync won't vouch for it until it could be copied.
func (s *Store) adoptOpen(old File, path string, size int64, h pack.Header) error {
	p := &packFile{id: h.ID, created: h.Created, path: path}
	fresh, entries, st, err := s.copyPack(old, size, path, h)
	switch {
	case err == nil:
		old.Close()
		p.file = fresh
		p.syncedEnd, p.dirSynced = st.End, true
	case isNoSpace(err):
		s.log.Warn("no space to recover an open pack; it is read where it is", "pack", path, "err", err)
		if entries, st, err = scanEntries(old, size); err != nil {
			old.Close()
			return fmt.Errorf("pack %s: %w", path, err)
		}
		p.file, p.suspect = old, true
	default:
		old.Close()
		return fmt.Errorf("recover pack %s: %w", path, err)
	}
	p.bytes = st.End
	s.addScanned(p, entries, st)
	s.rotated = append(s.rotated, p)
	return nil
}

// copyPack writes the header and the good records of a pack to a new file, makes that durable and gives it path's name.
func (s *Store) copyPack(old File, size int64, path string, h pack.Header) (File, []pack.Entry, pack.ScanStats, error) {
	tmp := strings.TrimSuffix(path, openSuffix) + tmpSuffix
	f, err := s.fs.Create(tmp)
	if err != nil {
		return nil, nil, pack.ScanStats{}, err
	}
	w := &offsetWriter{f: f}
	st := pack.ScanStats{}
	var entries []pack.Entry
	buf := pack.AppendHeader(nil, h)
	_, err = pack.Scan(old, size, func(r pack.Found) error {
		entries = append(entries, pack.Entry{Hash: r.Hash, Offset: uint32(w.at) + uint32(len(buf)), Bytes: uint32(r.Bytes())})
		st.Records++
		st.PlainBytes += int64(r.PlainBytes)
		if buf = append(buf, r.Whole...); len(buf) < 1<<20 {
			return nil
		}
		_, err := w.Write(buf)
		buf = buf[:0]
		return err
	})
	if err == nil {
		_, err = w.Write(buf)
	}
	st.End = w.at
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.fs.Rename(tmp, path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.packsDir)
	}
	if err != nil {
		f.Close()
		s.fs.Remove(tmp)
		return nil, nil, st, err
	}
	return f, entries, st, nil
}

// continueNewest makes the newest recovered pack the open one, if it has room. The others will be sealed.
func (s *Store) continueNewest() {
	if len(s.rotated) == 0 {
		return
	}
	newest := slices.MaxFunc(s.rotated, comparePacks)
	if newest.end.Load() >= s.targetBytes || newest.suspect {
		return
	}
	s.rotated = slices.DeleteFunc(s.rotated, func(p *packFile) bool { return p == newest })
	s.open = newest
	for _, t := range s.index.tables {
		if t.pack == newest {
			s.table = t
		}
	}
}

// loadRuns opens the index runs, and removes those that are damaged or say nothing that another doesn't.
func (s *Store) loadRuns() error {
	files, err := s.fs.List(s.indexDir)
	if err != nil {
		return err
	}
	var runs []*run
	for _, f := range files {
		path := filepath.Join(s.indexDir, f.Name)
		seq, parseErr := strconv.ParseUint(strings.TrimSuffix(f.Name, runSuffix), 10, 63)
		if parseErr != nil || !strings.HasSuffix(f.Name, runSuffix) {
			if err := s.fs.Remove(path); err != nil {
				return err
			}
			continue
		}
		s.index.nextSeq = max(s.index.nextSeq, seq+1)
		file, err := s.fs.Open(path)
		if err != nil {
			return err
		}
		r, err := openRun(file, path, seq)
		if err != nil {
			s.log.Warn("an index run is bad and is made again from the packs", "err", err)
			if err := s.fs.Remove(path); err != nil {
				return err
			}
			continue
		}
		r.bind(s.packs.byID)
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b *run) int { return int(int64(b.seq) - int64(a.seq)) }) // newest first
	known := map[*packFile]bool{nil: true}
	for _, r := range runs {
		news := false
		for _, p := range r.packs {
			news = news || !known[p]
			known[p] = true
		}
		if news {
			s.index.runs = append(s.index.runs, r)
		} else {
			s.dropRunFile(r)
		}
	}
	slices.Reverse(s.index.runs)
	return nil
}

// indexUncovered makes tables, from their footers, for packs that neither a table nor a run covers. Runs in except
// don't count.
func (s *Store) indexUncovered(except []*run) {
	covered := s.index.covered(except)
	for _, p := range s.packs.all() {
		if covered[p] || !p.sealed.Load() {
			continue
		}
		entries, err := s.packEntries(p)
		if err != nil && !errors.Is(err, errGone) {
			s.log.Error("a pack can't be indexed; its chunks are found by hints only", "pack", p.name(), "err", err)
			s.counters.damagedPacks.Add(1)
			continue
		}
		s.index.addTable(newTable(p, entries))
	}
}

// packEntries gives the footer of a sealed pack, or, when that is damaged, what a scan finds.
func (s *Store) packEntries(p *packFile) ([]pack.Entry, error) {
	p.mu.RLock()
	size := p.bytes
	p.mu.RUnlock()
	r := s.readerOf(p)
	sealed, err := pack.OpenSealed(r, size)
	if err == nil {
		var entries []pack.Entry
		if entries, err = sealed.Entries(); err == nil {
			return entries, nil
		}
	}
	if !errors.Is(err, pack.ErrDamaged) {
		return nil, err
	}
	s.log.Error("a pack's footer is damaged; its records are read instead", "pack", p.name(), "err", err)
	var entries []pack.Entry
	_, err = pack.Scan(r, p.end.Load(), func(f pack.Found) error {
		entries = append(entries, pack.Entry{Hash: f.Hash, Offset: uint32(f.Offset), Bytes: uint32(f.Bytes())})
		return nil
	})
	return entries, err
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
