package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"flash/cas/pack"
)

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
		// A power cut does this to what was not synced; a medium may do it to what was.
		s.log.Warn("an open pack is damaged among its records; the good ones are used", "pack", path,
			"good_records", st.Records, "damaged_bytes", st.DamagedBytes)
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
