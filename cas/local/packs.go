package local

import (
	"context"
	"fmt"
	"io"
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
		info := PackInfo{ID: p.id, Created: p.created, PlainBytes: p.plain.Load(), Records: p.records.Load(), Sealed: p.sealed.Load()}
		p.mu.RLock()
		info.Name, info.Bytes = baseName(p.path), max(p.bytes, p.end.Load())
		p.mu.RUnlock()
		infos = append(infos, info)
	}
	return infos
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
