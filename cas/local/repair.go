package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"flash/cas"
	"flash/cas/pack"
)

// Repair makes the index again from the packs, and replaces every damaged pack by a copy of its good records. Nothing is
// mended in place: the damaged file gets another name as it is, once the copy is durable. What has no good record
// anywhere is lost, and stays lost; report is called for each finding, from one goroutine.
//
// Readers and writers go on meanwhile.
func (s *Store) Repair(ctx context.Context, report func(cas.Damage)) (cas.RepairStats, error) {
	stats := cas.RepairStats{Quarantined: []string{}}
	if err := s.Seal(ctx); err != nil && !errors.Is(err, pack.ErrDamaged) {
		return stats, fmt.Errorf("repair: %w", err)
	}
	if err := s.gate.enter(); err != nil {
		return stats, err
	}
	defer s.gate.leave()
	if err := s.remakeIndex(); err != nil {
		return stats, fmt.Errorf("repair: make the index again: %w", err)
	}
	var read cas.VerifyStats
	v := verifier{s: s, decoder: pack.NewDecoder(s.Hasher()), report: report, stats: &read}
	for _, p := range s.packs.all() {
		if err := ctx.Err(); err != nil {
			return stats, err
		}
		if s.isOpen(p) {
			continue // begun after the seal above, a moment ago
		}
		before := read.Damages
		v.verify(p)
		stats.Packs++
		if read.Damages == before {
			continue
		}
		if err := s.salvage(ctx, p, v.decoder, &stats); err != nil {
			return stats, fmt.Errorf("repair pack %s: %w", p.name(), err)
		}
	}
	return stats, nil
}

func (s *Store) isOpen(p *packFile) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.open == p
}

// remakeIndex drops all runs and reads the packs' footers instead.
func (s *Store) remakeIndex() error {
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	s.index.mu.RLock()
	runs := slices.Clone(s.index.runs)
	s.index.mu.RUnlock()
	s.indexUncovered(runs) // first, so that nothing is missed meanwhile
	s.index.replace(nil, nil, nil, runs)
	for _, r := range runs {
		s.dropRunFile(r)
	}
	return s.compactIndex()
}

// salvage copies the good records of a damaged pack to a new one, and moves the old one to quarantine.
func (s *Store) salvage(ctx context.Context, p *packFile, decoder *pack.Decoder, stats *cas.RepairStats) error {
	s.sweepMu.Lock() // no writer refers to it from now on
	p.condemned.Store(true)
	s.sweepMu.Unlock()
	if err := s.checkSpace(p.end.Load()); err != nil {
		p.condemned.Store(false)
		return err
	}
	salvaged, err := s.copyGood(ctx, p, decoder)
	if err != nil {
		p.condemned.Store(false)
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return err
	}
	quarantined := p.name() + quarantineSuffix
	if _, err := s.takeOut(p, func(path string) error { return s.fs.Rename(path, filepath.Join(s.packsDir, quarantined)) }); err != nil {
		return err
	}
	s.openMu.Lock()
	s.rotated = slices.DeleteFunc(s.rotated, func(r *packFile) bool { return r == p })
	s.openMu.Unlock()
	if err := s.fs.SyncDir(s.packsDir); err != nil {
		return err
	}
	stats.Quarantined = append(stats.Quarantined, quarantined)
	stats.Salvaged += salvaged
	stats.LostRecords += max(0, p.records.Load()-salvaged)
	return nil
}

// copyGood writes and publishes a pack of p's records that hash to their names, if there are any.
func (s *Store) copyGood(ctx context.Context, p *packFile, decoder *pack.Decoder) (salvaged int64, err error) {
	h := pack.Header{KeyID: s.keyID, Created: s.now().UTC()}
	if err := s.newPackID(&h.ID); err != nil {
		return 0, err
	}
	tmp := filepath.Join(s.packsDir, hex.EncodeToString(h.ID[:])+tmpSuffix)
	f, err := s.fs.Create(tmp)
	if err != nil {
		return 0, err
	}
	published := false
	defer func() {
		if !published {
			f.Close()
			s.fs.Remove(tmp)
		}
	}()
	b := pack.NewBuilder(&offsetWriter{f: f}, h)
	var plain []byte
	_, err = pack.Scan(s.readerOf(p), p.end.Load(), func(r pack.Found) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if plain, _, err = decoder.AppendPlain(plain[:0], r.Whole); err != nil {
			return nil // its CRC is right, its name is not: no good record
		}
		if b.Has(r.Hash) {
			return nil
		}
		salvaged++
		_, err = b.Add(r.Whole)
		return err
	})
	if err != nil || salvaged == 0 {
		return salvaged, err
	}
	entries, trailer, err := b.Finish()
	if err != nil {
		return salvaged, err
	}
	err = s.publishPack(&packFile{id: h.ID, created: h.Created}, f, tmp, trailer, entries)
	published = err == nil
	return salvaged, err
}
