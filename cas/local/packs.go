package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"flash/cas"
	"flash/cas/pack"
)

// PackInfo is one pack, for tiers, collectors and people.
type PackInfo struct {
	ID         cas.PackID
	Name       string // of the file; a sealed pack's is its content hash and ".pack"
	Created    time.Time
	Bytes      int64
	PlainBytes int64
	Records    int64
	Sealed     bool
}

// Packs lists the packs, oldest first.
func (s *Store) Packs() []PackInfo {
	packs := s.packs.all()
	infos := make([]PackInfo, 0, len(packs))
	for _, p := range packs {
		infos = append(infos, p.info())
	}
	return infos
}

func (p *packFile) info() PackInfo {
	info := PackInfo{ID: p.id, Created: p.created, PlainBytes: p.plain.Load(), Records: p.records.Load(), Sealed: p.sealed.Load()}
	p.mu.RLock()
	defer p.mu.RUnlock()
	info.Name, info.Bytes = baseName(p.path), max(p.bytes, p.end.Load())
	return info
}

// ReadPack fills buf with a sealed pack's bytes from offset on: what a far tier uploads. It checks nothing; whoever
// reads a whole pack compares the content hash. ErrNotFound.
func (s *Store) ReadPack(ctx context.Context, id cas.PackID, buf []byte, offset int64) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	p := s.packs.byID(id)
	if p == nil || !p.sealed.Load() {
		return fmt.Errorf("sealed pack %x: %w", id, cas.ErrNotFound)
	}
	return s.readPack(p, buf, offset)
}

// PackEntries lists a sealed pack's records, ascending by hash. ErrNotFound.
func (s *Store) PackEntries(ctx context.Context, id cas.PackID) ([]pack.Entry, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := s.packs.byID(id)
	if p == nil || !p.sealed.Load() {
		return nil, fmt.Errorf("sealed pack %x: %w", id, cas.ErrNotFound)
	}
	return s.packEntries(p)
}

// OpenPack gives a sealed pack as a reader of all its bytes. It needs no closing. ErrNotFound.
func (s *Store) OpenPack(ctx context.Context, id cas.PackID) (*io.SectionReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := s.packs.byID(id)
	if p == nil || !p.sealed.Load() {
		return nil, fmt.Errorf("sealed pack %x: %w", id, cas.ErrNotFound)
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return io.NewSectionReader(s.readerOf(p), 0, p.bytes), nil
}

// ImportPack takes a sealed pack from another tier: size bytes of r, which must have this content hash. Everything in it
// is checked before it is used. A pack that is there already is not replaced.
func (s *Store) ImportPack(ctx context.Context, contentHash cas.Hash, r io.Reader, size int64) (PackInfo, error) {
	if err := s.gate.enter(); err != nil {
		return PackInfo{}, err
	}
	defer s.gate.leave()
	if size < pack.HeaderBytes+pack.TrailerBytes || size > pack.MaxPackBytes {
		return PackInfo{}, fmt.Errorf("import pack %s: %d bytes: %w", contentHash, size, pack.ErrDamaged)
	}
	if err := s.checkSpace(size); err != nil {
		return PackInfo{}, fmt.Errorf("import pack %s: %w", contentHash, err)
	}
	info, err := s.importPack(ctx, contentHash, r, size)
	if err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return PackInfo{}, fmt.Errorf("import pack %s: %w", contentHash, err)
	}
	return info, nil
}

func (s *Store) importPack(ctx context.Context, contentHash cas.Hash, r io.Reader, size int64) (PackInfo, error) {
	var tmpID cas.PackID
	if err := s.newPackID(&tmpID); err != nil {
		return PackInfo{}, err
	}
	tmp := filepath.Join(s.packsDir, hex.EncodeToString(tmpID[:])+tmpSuffix)
	f, err := s.fs.Create(tmp)
	if err != nil {
		return PackInfo{}, err
	}
	keep := false
	defer func() {
		if !keep {
			f.Close()
			s.fs.Remove(tmp)
		}
	}()
	n, err := io.CopyBuffer(&offsetWriter{f: f}, &contextReader{ctx, io.LimitReader(r, size)}, make([]byte, 1<<20))
	if err != nil {
		return PackInfo{}, err
	}
	if n != size {
		return PackInfo{}, fmt.Errorf("%d of %d bytes came: %w", n, size, io.ErrUnexpectedEOF)
	}
	sealed, err := pack.OpenSealed(f, size)
	if err != nil {
		return PackInfo{}, err
	}
	if sealed.KeyID != s.keyID {
		return PackInfo{}, fmt.Errorf("key %08x, this store has %08x: %w", sealed.KeyID, s.keyID, ErrWrongKey)
	}
	if sealed.ContentHash != contentHash {
		return PackInfo{}, fmt.Errorf("its content hash is %s: %w", sealed.ContentHash, pack.ErrDamaged)
	}
	var bad error
	err = sealed.Verify(pack.NewDecoder(s.Hasher()), func(e pack.Entry, err error) {
		bad = fmt.Errorf("record %s at offset %d: %w", e.Hash, e.Offset, err)
	})
	if err = errors.Join(err, bad); err != nil {
		return PackInfo{}, err
	}
	entries, err := sealed.Entries()
	if err != nil {
		return PackInfo{}, err
	}
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	p := s.packs.byID(sealed.ID)
	if p == nil {
		p = &packFile{id: sealed.ID, created: sealed.Created}
		if err := s.publishPack(p, f, tmp, sealed.Trailer, entries); err != nil {
			return PackInfo{}, err
		}
		keep = true
		if err := s.compactIndex(); err != nil {
			s.log.Warn("the chunk index can't be compacted yet", "err", err)
		}
	}
	return p.info(), nil
}

// contextReader ends with ctx.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// EvictPack removes a sealed pack that another tier has, and gives the bytes that were freed. Its chunks are not found
// here any more, unless another pack has them. ErrNotFound.
func (s *Store) EvictPack(ctx context.Context, id cas.PackID) (int64, error) {
	if err := s.gate.enter(); err != nil {
		return 0, err
	}
	defer s.gate.leave()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p := s.packs.byID(id)
	if p == nil || !p.sealed.Load() {
		return 0, fmt.Errorf("evict pack %x: %w", id, cas.ErrNotFound)
	}
	s.sweepMu.Lock() // no Put is between finding a chunk here and telling so
	p.condemned.Store(true)
	s.sweepMu.Unlock()
	return s.removePack(p)
}
