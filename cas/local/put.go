package local

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/pack"
)

// roundBytes of plain bytes are compressed at once: it bounds the memory of a Put, and makes the writes long.
const roundBytes = 8 << 20

// Put stores the absent ones among chunks. After an error, earlier ones of them may have been stored, and hints say
// nothing.
func (s *Store) Put(ctx context.Context, chunks []cas.Chunk, hints []cas.Hint) (cas.PutStats, error) {
	var stats cas.PutStats
	if err := s.gate.enter(); err != nil {
		return stats, err
	}
	defer s.gate.leave()
	if hints != nil && len(hints) != len(chunks) {
		return stats, fmt.Errorf("put %d chunks: room for %d hints", len(chunks), len(hints))
	}
	for i := range chunks {
		if err := chunks[i].Check(); err != nil {
			return stats, fmt.Errorf("put: %w", err)
		}
	}
	for first := 0; first < len(chunks); {
		if err := ctx.Err(); err != nil {
			return stats, err
		}
		last, plainBytes := first, 0
		for last < len(chunks) && (last == first || plainBytes+len(chunks[last].Data) <= roundBytes) {
			plainBytes += len(chunks[last].Data)
			last++
		}
		r := putRound{s: s, chunks: chunks[first:last]}
		if hints != nil {
			r.hints = hints[first:last]
		}
		done, err := r.run()
		stats = stats.Add(done)
		if err != nil {
			return stats, fmt.Errorf("put %d chunks: %w", len(chunks), err)
		}
		first = last
	}
	return stats, nil
}

// putRound is a part of a Put.
type putRound struct {
	s      *Store
	chunks []cas.Chunk
	hints  []cas.Hint // nil or as long as chunks
	fresh  []int      // chunks to store
	repeat []int      // chunks that an earlier one of fresh stores
	shards []shard
}

// shard is a part of fresh, encoded.
type shard struct {
	fresh   []int
	ends    []int // where each record ends in records
	records []byte
	pooled  *[]byte
}

func (r *putRound) run() (cas.PutStats, error) {
	s := r.s
	seen := s.appends.Load()
	if err := r.findAbsent(); err != nil {
		return cas.PutStats{}, err
	}
	stats := cas.PutStats{Chunks: len(r.chunks)}
	if len(r.fresh) == 0 {
		return stats, nil
	}
	defer r.release()
	r.encode()
	total := int64(0)
	for i := range r.shards {
		total += int64(len(r.shards[i].records))
	}
	if err := s.checkSpace(total); err != nil {
		return cas.PutStats{}, err
	}
	stored, rotated, err := r.append(seen)
	stats.NewChunks, stats.NewBytes = stored.NewChunks, stored.NewBytes
	s.counters.putNew.Add(int64(stored.NewChunks))
	if rotated {
		s.wantMaintenance()
	}
	if err == nil {
		r.fillRepeats()
	}
	return stats, err
}

// findAbsent looks every chunk up. sweepMu is held throughout, so that a pack is condemned either before, and then
// nothing refers to it, or after, and then the sweep knows what was referred to.
func (r *putRound) findAbsent() error {
	s := r.s
	s.sweepMu.RLock()
	defer s.sweepMu.RUnlock()
	r.fresh = make([]int, 0, len(r.chunks))
	in := make(map[cas.Hash]struct{}, len(r.chunks))
	var places [8]location
	for i := range r.chunks {
		h := r.chunks[i].Hash
		if l, ok := s.place(places[:0], h); ok {
			if r.hints != nil {
				r.hints[i] = l.hint()
			}
			s.touch(h)
			continue
		}
		if _, ok := in[h]; ok {
			r.repeat = append(r.repeat, i)
			continue
		}
		in[h] = struct{}{}
		r.fresh = append(r.fresh, i)
	}
	s.counters.putKnown.Add(int64(len(r.chunks) - len(r.fresh)))
	return nil
}

// place finds a place a writer may refer to. An index that can't be read costs a duplicate here, never more.
func (s *Store) place(buf []location, h cas.Hash) (location, bool) {
	found, err := s.index.locate(buf, h)
	if err != nil {
		s.log.Warn("the chunk index can't be read", "err", err)
	}
	for _, l := range found {
		if s.mayRefer(l) {
			return l, true
		}
	}
	return location{}, false
}

func (s *Store) mayRefer(l location) bool { return !l.pack.condemned.Load() && !s.isBad(l) }

// encode compresses fresh, shared out among workers in order.
func (r *putRound) encode() {
	const least = 32 // chunks a goroutine is worth
	workers := max(1, min(r.s.workers, len(r.fresh)/least))
	r.shards = make([]shard, workers)
	for w := range r.shards {
		r.shards[w].fresh = r.fresh[len(r.fresh)*w/workers : len(r.fresh)*(w+1)/workers]
	}
	if workers == 1 {
		r.encodeShard(&r.shards[0])
		return
	}
	var g errgroup.Group
	for w := range r.shards {
		g.Go(func() error { r.encodeShard(&r.shards[w]); return nil })
	}
	g.Wait()
}

func (r *putRound) encodeShard(sh *shard) {
	enc := r.s.encoders.Get().(*pack.Encoder)
	defer r.s.encoders.Put(enc)
	sh.pooled = r.s.batches.Get().(*[]byte)
	sh.records = (*sh.pooled)[:0]
	sh.ends = make([]int, len(sh.fresh))
	for j, i := range sh.fresh {
		sh.records = enc.AppendRecord(sh.records, &r.chunks[i])
		sh.ends[j] = len(sh.records)
	}
	*sh.pooled = sh.records
}

func (r *putRound) release() {
	for i := range r.shards {
		if p := r.shards[i].pooled; p != nil {
			r.s.batches.Put(p)
		}
	}
}

// fillRepeats gives chunks that were given twice the hints of their first ones.
func (r *putRound) fillRepeats() {
	if r.hints == nil {
		return
	}
	var places [8]location
	for _, i := range r.repeat {
		if l, ok := r.s.place(places[:0], r.chunks[i].Hash); ok {
			r.hints[i] = l.hint()
		}
	}
}
