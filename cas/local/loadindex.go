package local

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"flash/cas/pack"
)

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
