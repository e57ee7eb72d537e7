package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"flash/cas"
	"flash/cas/pack"
)

// DumpPack reads a pack record by record. The name is the file's, or the pack's id, or as much of either's beginning as
// only one pack has. ErrNotFound.
func (s *Store) DumpPack(ctx context.Context, name string) (cas.PackDump, error) {
	if err := s.gate.enter(); err != nil {
		return cas.PackDump{}, err
	}
	defer s.gate.leave()
	p, err := s.packCalled(name)
	if err != nil {
		return cas.PackDump{}, err
	}
	info := p.info()
	d := cas.PackDump{Name: info.Name, ID: hex.EncodeToString(info.ID[:]), Created: info.Created, Sealed: info.Sealed,
		Bytes: info.Bytes, PlainBytes: info.PlainBytes, Records: []cas.PackRecord{}}
	st, err := pack.Scan(s.readerOf(p), p.end.Load(), func(f pack.Found) error {
		d.Records = append(d.Records, cas.PackRecord{Hash: f.Hash, Kind: f.Kind.String(), Codec: f.Codec.String(), Offset: f.Offset,
			Bytes: int64(f.Record.Bytes()), PlainBytes: f.PlainBytes, NamedBytes: f.NamedBytes})
		return ctx.Err()
	})
	d.DamagedBytes = st.DamagedBytes
	if err != nil {
		return d, fmt.Errorf("pack %s: %w", info.Name, err)
	}
	return d, nil
}

// HashesOf lists the chunks of one kind, each once. It reads all packs whole: a footer doesn't say what its records are.
func (s *Store) HashesOf(ctx context.Context, kind cas.Kind) ([]cas.Hash, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	defer s.gate.leave()
	seen := map[cas.Hash]struct{}{}
	var all []cas.Hash
	for _, p := range s.packs.all() {
		_, err := pack.Scan(s.readerOf(p), p.end.Load(), func(f pack.Found) error {
			if _, ok := seen[f.Hash]; f.Kind == kind && !ok {
				seen[f.Hash] = struct{}{}
				all = append(all, f.Hash)
			}
			return ctx.Err()
		})
		if err != nil && !errors.Is(err, errGone) {
			return nil, fmt.Errorf("pack %s: %w", p.name(), err)
		}
	}
	return all, nil
}

func (s *Store) packCalled(name string) (*packFile, error) {
	var found *packFile
	for _, p := range s.packs.all() {
		if name == "" || !strings.HasPrefix(p.name(), name) && !strings.HasPrefix(hex.EncodeToString(p.id[:]), name) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("pack %q: more than one begins so: %w", name, cas.ErrNotFound)
		}
		found = p
	}
	if found == nil {
		return nil, fmt.Errorf("pack %q: %w", name, cas.ErrNotFound)
	}
	return found, nil
}

// PackNames lists the packs, oldest first.
func (s *Store) PackNames() []string {
	var names []string
	for _, p := range s.Packs() {
		names = append(names, p.Name)
	}
	return names
}
