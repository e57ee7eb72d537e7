package local

import (
	"context"
	"encoding/hex"
	"path/filepath"

	"flash/cas"
	"flash/cas/pack"
)

// compactor copies the living records of several packs into one new pack, compressed better, and removes the old packs
// when the new one is durable.
type compactor struct {
	s       *Store
	stats   *cas.SweepStats
	recoder *pack.Recoder
	header  pack.Header
	tmp     string
	file    File          // nil: no pack is being made
	builder *pack.Builder // nil with file
	sources []*packFile   // go when the pack is made
}

// add copies what keep wants of a pack.
func (c *compactor) add(ctx context.Context, p *packFile, keep func(pack.Entry) bool) error {
	p.mu.RLock()
	size := p.bytes
	p.mu.RUnlock()
	sealed, err := pack.OpenSealed(c.s.readerOf(p), size)
	if err != nil {
		return err
	}
	entries, err := sealed.Entries()
	if err != nil {
		return err
	}
	kept := int64(0)
	for _, e := range entries {
		if keep(e) {
			kept += int64(e.Bytes)
		}
	}
	if kept == 0 {
		c.remove(p)
		return nil
	}
	if err := c.s.checkSpace(kept); err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	// What another source had too is there, checked, once: a crash between a copy and the removal of its source leaves two.
	once := func(e pack.Entry) bool { return !c.builder.Has(e.Hash) && keep(e) }
	if err := sealed.Reseal(ctx, c.builder, c.recoder, once); err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return err // what was copied is good, and there twice
	}
	c.sources = append(c.sources, p)
	return nil
}

func (c *compactor) begin() error {
	if c.builder != nil {
		return nil
	}
	if c.recoder == nil {
		c.recoder = pack.NewRecoder(pack.Zstd, c.s.Hasher())
	}
	c.header = pack.Header{KeyID: c.s.keyID, Created: c.s.now().UTC()}
	if err := c.s.newPackID(&c.header.ID); err != nil {
		return err
	}
	c.tmp = filepath.Join(c.s.packsDir, hex.EncodeToString(c.header.ID[:])+tmpSuffix)
	var err error
	if c.file, err = c.s.fs.Create(c.tmp); err != nil {
		return err
	}
	c.builder = pack.NewBuilder(&offsetWriter{f: c.file}, c.header)
	return nil
}

// finish makes the new pack durable, lets the index find it, and removes the sources.
func (c *compactor) finish() error {
	if c.builder == nil {
		return nil
	}
	defer c.abort()
	entries, trailer, err := c.builder.Finish()
	if err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return err
	}
	p := &packFile{id: c.header.ID, created: c.header.Created}
	if err := c.s.publishPack(p, c.file, c.tmp, trailer, entries); err != nil {
		return err
	}
	c.builder, c.file = nil, nil
	c.stats.MadePacks++
	c.stats.WrittenBytes += trailer.Bytes()
	for _, old := range c.sources {
		c.remove(old)
	}
	c.sources = nil
	return nil
}

// abort forgets the pack that is being made; the sources stay. A no-op after finish.
func (c *compactor) abort() {
	for _, p := range c.sources {
		p.condemned.Store(false)
	}
	c.sources = nil
	if c.file != nil {
		c.file.Close()
		c.s.fs.Remove(c.tmp)
	}
	c.file, c.builder = nil, nil
}

func (c *compactor) remove(p *packFile) {
	bytes, err := c.s.removePack(p)
	if err != nil {
		c.s.log.Warn("a swept pack's file can't be removed; it is swept again", "pack", p.name(), "err", err)
		return
	}
	c.stats.RemovedPacks++
	c.stats.FreedBytes += bytes
}

// publishPack syncs a sealed pack written under a temporary name, renames it, and adds it to catalogue and index.
// It owns f when it succeeds.
func (s *Store) publishPack(p *packFile, f File, tmp string, t pack.Trailer, entries []pack.Entry) error {
	if err := f.Sync(); err != nil {
		return err
	}
	path := filepath.Join(s.packsDir, pack.FileName(t.ContentHash))
	if err := s.fs.Rename(tmp, path); err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.packsDir); err != nil {
		return err
	}
	p.path, p.bytes, p.file = path, t.Bytes(), f
	p.end.Store(t.RecordsEnd)
	p.records.Store(int64(t.Entries))
	p.plain.Store(t.PlainBytes)
	p.sealed.Store(true)
	s.packs.add(p)
	s.index.addTable(newTable(p, entries))
	s.handles.opened(p)
	return nil
}

// removePack takes a pack out of index and catalogue, and removes its file. Readers that found it look again.
func (s *Store) removePack(p *packFile) (bytes int64, err error) {
	return s.takeOut(p, s.fs.Remove)
}

// takeOut takes a pack out of index and catalogue, and has dispose do something with its file.
func (s *Store) takeOut(p *packFile, dispose func(path string) error) (bytes int64, err error) {
	s.packs.remove(p)
	s.index.forget(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
	return p.bytes, dispose(p.path)
}
