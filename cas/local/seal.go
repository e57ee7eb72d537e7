package local

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"flash/cas/pack"
)

// Seal rotates the open pack, if anything is in it, and seals all that wait: for a tier that takes sealed packs only.
func (s *Store) Seal(ctx context.Context) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.appendMu.Lock()
	s.rotate()
	s.appendMu.Unlock()
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	return s.sealRotated()
}

// rotate ends the open pack. The next append begins another. appendMu is held.
func (s *Store) rotate() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.open != nil {
		s.rotated = append(s.rotated, s.open)
		s.open, s.table = nil, nil
	}
}

// sealRotated seals what was rotated, and gives the first error. maintainMu is held.
func (s *Store) sealRotated() error {
	s.openMu.Lock()
	waiting := slices.Clone(s.rotated)
	s.openMu.Unlock()
	var failed error
	for _, p := range waiting {
		if err := s.sealPack(p); err != nil {
			if failed == nil {
				failed = fmt.Errorf("seal pack %s: %w", p.name(), err)
			}
			continue
		}
		s.openMu.Lock()
		s.rotated = slices.DeleteFunc(s.rotated, func(r *packFile) bool { return r == p })
		s.openMu.Unlock()
		s.handles.opened(p)
	}
	return failed
}

// sealPack appends the footer, syncs, and renames the file to its content. A crash in between leaves an open pack with
// something behind its records, which recovery drops.
func (s *Store) sealPack(p *packFile) error {
	if err := s.syncPack(p); err != nil {
		return err
	}
	end := p.end.Load()
	footer, contentHash, err := pack.Seal(s.readerOf(p), end) // reads the whole pack; p.ioMu isn't held, so that Sync needn't wait
	if err != nil {
		return err
	}
	p.ioMu.Lock()
	defer p.ioMu.Unlock()
	if p.suspect {
		return fmt.Errorf("a sync failed meanwhile")
	}
	if err := writeFooter(p.file, footer, end); err != nil {
		return err
	}
	if err := p.file.Sync(); err != nil {
		p.suspect = true
		return err
	}
	path := filepath.Join(s.packsDir, pack.FileName(contentHash))
	p.mu.Lock()
	err = s.fs.Rename(p.path, path)
	if err == nil {
		p.path, p.bytes = path, end+int64(len(footer))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.sealed.Store(true)
	s.counters.seals.Add(1)
	if err := s.fs.SyncDir(s.packsDir); err != nil {
		// Not a failure: the bytes are durable, and under the old name they are recovered.
		s.log.Warn("the name of a sealed pack is not durable yet", "pack", p.name(), "err", err)
	}
	return nil
}

// writeFooter ends the file with the footer: a failed append may have left bytes behind the records.
func writeFooter(f File, footer []byte, end int64) error {
	if _, err := f.WriteAt(footer, end); err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return err
	}
	size, err := f.Size()
	if err == nil && size > end+int64(len(footer)) {
		err = f.Truncate(end + int64(len(footer)))
	}
	return err
}
