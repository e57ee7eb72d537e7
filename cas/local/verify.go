package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"flash/cas"
	"flash/cas/pack"
)

// Verify reads a fraction of the packs, chosen at random, or all (1), and checks every byte of them: checksums, names,
// the footer, the content hash, and that the index finds every record. report is called for each finding, from one
// goroutine. The error is about the check itself.
func (s *Store) Verify(ctx context.Context, fraction float64, report func(cas.Damage)) (cas.VerifyStats, error) {
	var stats cas.VerifyStats
	if err := s.gate.enter(); err != nil {
		return stats, err
	}
	defer s.gate.leave()
	if !(fraction > 0 && fraction <= 1) {
		return stats, fmt.Errorf("verify %v of the packs: want a fraction above 0 and at most 1", fraction)
	}
	packs, err := s.sample(fraction)
	if err != nil {
		return stats, err
	}
	v := verifier{s: s, decoder: pack.NewDecoder(s.Hasher()), report: report, stats: &stats}
	for _, p := range packs {
		if err := ctx.Err(); err != nil {
			return stats, err
		}
		v.verify(p)
	}
	return stats, nil
}

// sample chooses packs until they hold the fraction of all bytes; at least one, if there is one.
func (s *Store) sample(fraction float64) ([]*packFile, error) {
	packs := s.packs.all()
	var seed [8]byte
	if _, err := io.ReadFull(s.rand, seed[:]); err != nil {
		return nil, fmt.Errorf("choose packs to verify: %w", err)
	}
	rng := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), 0))
	rng.Shuffle(len(packs), func(i, j int) { packs[i], packs[j] = packs[j], packs[i] })
	total, chosen := int64(0), int64(0)
	for _, p := range packs {
		total += p.end.Load()
	}
	for i, p := range packs {
		if float64(chosen) >= fraction*float64(total) {
			return packs[:i], nil
		}
		chosen += p.end.Load()
	}
	return packs, nil
}

// verifier is a Verify that runs.
type verifier struct {
	s       *Store
	decoder *pack.Decoder
	report  func(cas.Damage)
	stats   *cas.VerifyStats
}

func (v *verifier) found(p *packFile, h cas.Hash, offset int64, err error) {
	v.stats.Damages++
	v.report(cas.Damage{Pack: p.name(), Hash: h, Offset: offset, Err: err})
}

func (v *verifier) verify(p *packFile) {
	var err error
	if p.sealed.Load() {
		err = v.sealed(p)
	} else if err = v.open(p); err == nil {
		err = p.damage
	}
	switch {
	case errors.Is(err, errGone): // swept meanwhile
		return
	case err != nil:
		v.found(p, cas.Hash{}, 0, err)
	}
	v.stats.Packs++
}

func (v *verifier) sealed(p *packFile) error {
	p.mu.RLock()
	size := p.bytes
	p.mu.RUnlock()
	sealed, err := pack.OpenSealed(v.s.readerOf(p), size)
	if err != nil {
		return err
	}
	damaged := false
	err = sealed.Verify(v.decoder, func(e pack.Entry, err error) {
		damaged = true
		v.found(p, e.Hash, int64(e.Offset), v.s.damaged(location{p, e.Offset, e.Bytes}, e.Hash, err))
	})
	if err != nil && !(damaged && errors.Is(err, pack.ErrDamaged)) {
		return err
	}
	entries, err := sealed.Entries()
	if err != nil {
		return err
	}
	v.stats.Bytes += size
	for _, e := range entries {
		v.stats.Records++
		v.indexed(p, e.Hash, e.Offset)
	}
	return nil
}

// open verifies a pack that has no footer. Another Put may append to it meanwhile.
func (v *verifier) open(p *packFile) error {
	end := p.end.Load()
	known := v.s.index.placesIn(p)
	var plain []byte
	st, err := pack.Scan(v.s.readerOf(p), end, func(f pack.Found) error {
		v.stats.Records++
		var err error
		if plain, _, err = v.decoder.AppendPlain(plain[:0], f.Whole); err != nil {
			v.found(p, f.Hash, f.Offset, err)
		}
		v.indexed(p, f.Hash, uint32(f.Offset))
		delete(known, uint32(f.Offset))
		return nil
	})
	if err == nil {
		v.lost(p, known, end)
	}
	v.stats.Bytes += end
	if err == nil && (st.DamagedBytes > 0 || st.End != end) {
		err = fmt.Errorf("%d bytes among the records are in no good one: %w", st.DamagedBytes+end-st.End, pack.ErrDamaged)
	}
	return err
}

// lost tells of the records that the index knows in p and a scan doesn't find: places by offset.
func (v *verifier) lost(p *packFile, places map[uint32]keyedPlace, end int64) {
	for offset, place := range places {
		if int64(offset)+int64(place.bytes) > end {
			continue // appended since
		}
		record, err := v.s.readRecord(location{p, offset, place.bytes}, nil)
		if err == nil {
			_, _, err = v.decoder.AppendPlain(nil, record)
		}
		if err != nil {
			v.found(p, v.nameOf(record, place.key), int64(offset), err)
		}
	}
}

// nameOf finds out what a damaged record was called: the index knows the beginning of its name. Either the name in its
// framing is whole, or its bytes are and hash to it. Zero when neither is.
func (v *verifier) nameOf(record []byte, k key) cas.Hash {
	if r, plain, err := v.decoder.Damaged(record); err == nil && len(plain) >= r.NamedBytes {
		if sum := v.s.Hasher().Sum(plain[:r.NamedBytes]); keyOf(sum) == k {
			return sum
		}
	}
	if len(record) >= pack.RecordHeaderBytes {
		if h := pack.NameIn(record); keyOf(h) == k {
			return h
		}
	}
	return cas.Hash{}
}

// indexed checks that the index finds the record.
func (v *verifier) indexed(p *packFile, h cas.Hash, offset uint32) {
	var places [8]location
	found, err := v.s.index.locate(places[:0], h)
	if err == nil && !slices.ContainsFunc(found, func(l location) bool { return l.pack == p && l.offset == offset }) {
		p.mu.RLock()
		gone := p.gone
		p.mu.RUnlock()
		if gone {
			return
		}
		err = fmt.Errorf("the index doesn't find it")
	}
	if err != nil {
		v.found(p, h, int64(offset), err)
	}
}
