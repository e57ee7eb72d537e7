package local

import (
	"context"
	"io"
	"strings"

	"flash/cas"
)

// PackOf gives a sealed pack that has the chunk and may be referred to: the newest. A record known to be damaged doesn't
// count.
func (s *Store) PackOf(h cas.Hash) (cas.PackID, bool) {
	var places [8]location
	found, _ := s.index.locate(places[:0], h) // a run that can't be read has what is found in no other: not there
	for _, l := range found {
		if l.pack.sealed.Load() && s.mayRefer(l) {
			return l.pack.id, true
		}
	}
	return cas.PackID{}, false
}

// PackHash gives a sealed pack's content hash and length.
func (s *Store) PackHash(id cas.PackID) (contentHash cas.Hash, bytes int64, ok bool) {
	p := s.packs.byID(id)
	if p == nil || !p.sealed.Load() {
		return cas.Hash{}, 0, false
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	contentHash, err := cas.ParseHash(strings.TrimSuffix(baseName(p.path), packSuffix)) // its name is its content's
	return contentHash, p.bytes, err == nil
}

// ImportPackFrom is ImportPack for who doesn't ask what the pack is.
func (s *Store) ImportPackFrom(ctx context.Context, contentHash cas.Hash, r io.Reader, size int64) error {
	_, err := s.ImportPack(ctx, contentHash, r, size)
	return err
}
