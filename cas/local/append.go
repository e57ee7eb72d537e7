package local

import (
	"encoding/hex"
	"fmt"
	"path/filepath"

	"flash/cas"
	"flash/cas/pack"
)

// append writes the shards to the open pack with few long writes, and enters them into its table. seen is how many
// appends there were when the chunks were looked up: after others, they are looked up again, for two machines often put
// the same chunks at the same time.
func (r *putRound) append(seen uint64) (stored cas.PutStats, rotated bool, err error) {
	s := r.s
	s.sweepMu.RLock()
	defer s.sweepMu.RUnlock()
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	again := s.appends.Add(1) != seen+1
	for i := range r.shards {
		sh := &r.shards[i]
		for j := 0; j < len(sh.fresh); {
			if again && r.storedMeanwhile(sh.fresh[j]) {
				j++
				continue
			}
			if s.open != nil && s.open.end.Load() >= s.targetBytes {
				s.rotate()
				rotated = true
			}
			if s.open == nil {
				if err := s.beginPack(); err != nil {
					return stored, rotated, err
				}
			}
			next := j + 1 // as many records as fit, and none that was stored meanwhile
			for room := s.targetBytes - s.open.end.Load(); next < len(sh.fresh); next++ {
				if int64(sh.ends[next]-sh.start(j)) > room || again && r.storedMeanwhile(sh.fresh[next]) {
					break
				}
			}
			n, err := r.write(sh, j, next)
			if err != nil {
				return stored, rotated, err
			}
			stored.NewChunks += next - j
			stored.NewBytes += n
			j = next
		}
	}
	return stored, rotated, nil
}

// start is where record j begins.
func (sh *shard) start(j int) int {
	if j == 0 {
		return 0
	}
	return sh.ends[j-1]
}

// storedMeanwhile looks chunk i up again, and fills its hint.
func (r *putRound) storedMeanwhile(i int) bool {
	h := r.chunks[i].Hash
	var places [8]location
	for _, l := range r.s.index.locateRecent(places[:0], h) {
		if r.s.mayRefer(l) {
			if r.hints != nil {
				r.hints[i] = l.hint()
			}
			r.s.touch(h)
			return true
		}
	}
	return false
}

// write appends records first to next of sh. When it fails the pack's end stays where it was: a later append writes over
// what got there. appendMu is held.
func (r *putRound) write(sh *shard, first, next int) (int64, error) {
	s := r.s
	p, t := s.open, s.table
	at, base := p.end.Load(), sh.start(first)
	records := sh.records[base:sh.ends[next-1]]
	if _, err := p.file.WriteAt(records, at); err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return 0, fmt.Errorf("append %d bytes to pack %s: %w", len(records), p.name(), err)
	}
	entries := make([]pack.Entry, 0, next-first)
	plainBytes := int64(0)
	for j := first; j < next; j++ {
		i := sh.fresh[j]
		e := pack.Entry{Hash: r.chunks[i].Hash, Offset: uint32(at) + uint32(sh.start(j)-base), Bytes: uint32(sh.ends[j] - sh.start(j))}
		entries = append(entries, e)
		if r.hints != nil {
			r.hints[i] = cas.Hint{Pack: p.id, Offset: e.Offset, Bytes: e.Bytes}
		}
		plainBytes += int64(len(r.chunks[i].Data))
	}
	p.records.Add(int64(len(entries)))
	p.plain.Add(plainBytes)
	p.end.Add(int64(len(records)))
	t.add(entries)
	return int64(len(records)), nil
}

// beginPack makes a new open pack. Its name becomes durable with the first Sync. appendMu is held.
func (s *Store) beginPack() error {
	h := pack.Header{KeyID: s.keyID, Created: s.now().UTC()}
	if err := s.newPackID(&h.ID); err != nil {
		return err
	}
	path := filepath.Join(s.packsDir, hex.EncodeToString(h.ID[:])+openSuffix)
	f, err := s.fs.Create(path)
	if err == nil {
		if _, err = f.WriteAt(pack.AppendHeader(nil, h), 0); err != nil {
			f.Close()
			s.fs.Remove(path)
		}
	}
	if err != nil {
		if isNoSpace(err) {
			err = noSpace(err)
		}
		return fmt.Errorf("begin pack %s: %w", path, err)
	}
	p := &packFile{id: h.ID, created: h.Created, path: path, file: f}
	p.end.Store(pack.HeaderBytes)
	t := newTable(p, nil)
	s.packs.add(p)
	s.index.addTable(t)
	s.openMu.Lock()
	s.open, s.table = p, t
	s.openMu.Unlock()
	return nil
}
