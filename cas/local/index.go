package local

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"flash/cas"
)

// index finds chunks: in a table for each recent pack, and in a few runs for all the others.
type index struct {
	mu      sync.RWMutex // guards the rest; held for reading across a bucket's pread
	tables  []*table     // oldest first
	runs    []*run       // oldest first
	nextSeq uint64
}

// locate appends every place where a chunk of that name may be, newest first. An error names a run that can't be read.
func (x *index) locate(dst []location, h cas.Hash) ([]location, error) {
	k := keyOf(h)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := len(x.tables) - 1; i >= 0; i-- {
		if l, ok := x.tables[i].find(k); ok {
			dst = append(dst, l)
		}
	}
	var failed error
	for i := len(x.runs) - 1; i >= 0; i-- {
		var err error
		if dst, err = x.runs[i].find(dst, k); err != nil {
			failed = err
		}
	}
	return dst, failed
}

// locateRecent looks into the tables only.
func (x *index) locateRecent(dst []location, h cas.Hash) []location {
	k := keyOf(h)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := len(x.tables) - 1; i >= 0; i-- {
		if l, ok := x.tables[i].find(k); ok {
			dst = append(dst, l)
		}
	}
	return dst
}

func (x *index) addTable(t *table) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tables = append(x.tables, t)
}

// forget removes a pack from the index.
func (x *index) forget(p *packFile) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tables = slices.DeleteFunc(x.tables, func(t *table) bool { return t.pack == p })
	for _, r := range x.runs {
		for i := range r.packs {
			if r.packs[i] == p {
				r.packs[i] = nil
			}
		}
	}
}

// covered tells which packs are in a table or a run, runs in except not counted.
func (x *index) covered(except []*run) map[*packFile]bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	in := map[*packFile]bool{}
	for _, t := range x.tables {
		in[t.pack] = true
	}
	for _, r := range x.runs {
		if slices.Contains(except, r) {
			continue
		}
		for _, p := range r.packs {
			if p != nil {
				in[p] = true
			}
		}
	}
	return in
}

func (x *index) allVerified() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return !slices.ContainsFunc(x.runs, func(r *run) bool { return !r.verified.Load() })
}

// plan chooses what the next run is made of: the tables of sealed packs, and the newest runs as long as they are not
// much larger than what is newer. So runs double in size towards the oldest, and there are few. A run of which a third
// or more of the packs is gone is taken along with all newer ones.
func (x *index) plan(flushTables int) (tables []*table, runs []*run) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	entries := int64(0)
	for _, t := range x.tables {
		if t.pack.sealed.Load() {
			tables = append(tables, t)
			entries += int64(t.len())
		}
	}
	first := len(x.runs)
	for i, r := range x.runs {
		dead := 0
		for _, p := range r.packs {
			if p == nil {
				dead++
			}
		}
		if dead*3 >= len(r.packs) {
			first = min(first, i)
		}
	}
	if len(tables) < flushTables && first == len(x.runs) {
		return nil, nil
	}
	for _, r := range x.runs[first:] {
		entries += r.entries
	}
	for first > 0 && x.runs[first-1].entries <= 2*entries {
		first--
		entries += x.runs[first].entries
	}
	return tables, slices.Clone(x.runs[first:])
}

// replace puts the new run in the place of what it was made of. No reader has the old runs after that. The new one is
// bound to its packs under the lock that forget takes.
func (x *index) replace(made *run, byID func(cas.PackID) *packFile, tables []*table, runs []*run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tables = slices.DeleteFunc(x.tables, func(t *table) bool { return slices.Contains(tables, t) })
	x.runs = slices.DeleteFunc(x.runs, func(r *run) bool { return slices.Contains(runs, r) })
	if made != nil {
		made.bind(byID)
		x.runs = append(x.runs, made)
		slices.SortFunc(x.runs, func(a, b *run) int { return cmp.Compare(a.seq, b.seq) })
	}
}

// compactIndex makes a new run when it is time to. maintainMu is held.
func (s *Store) compactIndex() error {
	tables, runs := s.index.plan(s.flushTables)
	if len(tables)+len(runs) == 0 {
		return nil
	}
	sources := []runSource{newTableSource(tables)}
	room := int64(0)
	var packs []*packFile
	seen := map[*packFile]bool{nil: true}
	for _, t := range tables {
		packs = append(packs, t.pack)
		seen[t.pack] = true
		room += int64(t.len())
	}
	s.index.mu.RLock()
	for _, r := range runs {
		// A copy: forget may take packs out meanwhile. An entry too many is skipped by who finds it.
		frozen := &run{path: r.path, file: r.file, entries: r.entries, crc: r.crc, packs: slices.Clone(r.packs)}
		sources = append(sources, &fileSource{run: frozen})
		room += r.entries
		for _, p := range frozen.packs {
			if !seen[p] {
				packs = append(packs, p)
				seen[p] = true
			}
		}
	}
	s.index.mu.RUnlock()
	var made *run
	if len(packs) > 0 {
		var err error
		if made, err = s.writeRun(room, packs, sources); err != nil {
			return err
		}
	}
	s.index.replace(made, s.packs.byID, tables, runs)
	for _, r := range runs {
		s.dropRunFile(r)
	}
	return nil
}

// writeRun makes a run file and opens it.
func (s *Store) writeRun(room int64, packs []*packFile, sources []runSource) (*run, error) {
	if len(packs) > maxRunPacks {
		return nil, fmt.Errorf("index of %d packs, want at most %d", len(packs), maxRunPacks)
	}
	s.index.mu.Lock()
	seq := s.index.nextSeq
	s.index.nextSeq++
	s.index.mu.Unlock()
	path := filepath.Join(s.indexDir, fmt.Sprintf("%016d%s", seq, runSuffix))
	f, err := s.fs.Create(path + tmpSuffix)
	if err != nil {
		return nil, err
	}
	err = mergeRuns(newRunWriter(f, room, packs), sources)
	if err == nil {
		err = s.fs.Rename(path+tmpSuffix, path)
	}
	if err != nil {
		f.Close()
		s.fs.Remove(path + tmpSuffix)
		return nil, fmt.Errorf("write index run %s: %w", baseName(path), err)
	}
	// No SyncDir: a run that is lost is written again.
	r, err := openRun(f, path, seq)
	if err == nil {
		r.verified.Store(true) // its entries were in our hands a moment ago
	}
	return r, err
}

func (s *Store) dropRunFile(r *run) {
	r.file.Close()
	if err := s.fs.Remove(r.path); err != nil {
		s.log.Warn("an old index run can't be removed", "run", baseName(r.path), "err", err)
	}
}

// checkRuns reads the entries of every run that was never read whole, drops the bad ones, and indexes their packs from
// the footers. It gives true when it found one. A store does this before it says that a chunk isn't there.
func (s *Store) checkRuns() bool {
	if s.index.allVerified() {
		return false // the usual case, without waiting for a compaction
	}
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	s.index.mu.RLock()
	runs := slices.Clone(s.index.runs)
	s.index.mu.RUnlock()
	var bad []*run
	for _, r := range runs {
		if err := r.verify(); err != nil {
			s.log.Error("an index run is bad and is made again from the packs", "err", err)
			bad = append(bad, r)
		}
	}
	if len(bad) == 0 {
		return false
	}
	s.indexUncovered(bad) // first, so that nothing is missed meanwhile
	s.index.replace(nil, nil, nil, bad)
	for _, r := range bad {
		s.dropRunFile(r)
	}
	return true
}
