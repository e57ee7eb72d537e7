package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"flash/cas"
	"flash/cas/pack"
)

// ErrSweeping: one sweep at a time.
var ErrSweeping = errors.New("a sweep is running already")

// Sweep removes chunks that nothing reaches. It is begun before the marking, for from then on it remembers what Put and
// Has were told is there: a chunk that is unmarked, and referred to again meanwhile, stays (I4).
//
//	sw, err := s.BeginSweep(ctx)
//	defer sw.End()
//	live := mark everything reachable; what open transactions put before BeginSweep too
//	stats, err := sw.Run(ctx, live, budget)
//
// Only packs that were there at BeginSweep are swept. A pack is condemned before it is copied: readers still use it,
// and no writer refers to it any more. It is removed when the copy of what lives in it is durable and found by the index.
type Sweep struct {
	s     *Store
	packs []*packFile
}

var _ cas.Sweep = (*Sweep)(nil)

const (
	// A pack is compacted when a quarter of it is dead: the store is at most a third larger than what lives in it.
	sweepDeadPercent = 25
	// A pack this many times smaller than the target is joined with others.
	smallPackFactor = 4
)

// BeginSweep seals the open pack, so that it is swept too, and begins to remember what is referred to. ErrSweeping.
func (s *Store) BeginSweep(ctx context.Context) (cas.Sweep, error) {
	// A pack that can't be sealed because it is damaged stays, whole, until a repair: no reason to sweep none of the others.
	if err := s.Seal(ctx); err != nil && !errors.Is(err, pack.ErrDamaged) {
		return nil, fmt.Errorf("begin a sweep: %w", err)
	}
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	if s.touched != nil {
		return nil, ErrSweeping
	}
	s.touched = map[cas.Hash]struct{}{}
	w := &Sweep{s: s}
	for _, p := range s.packs.all() {
		if p.sealed.Load() {
			w.packs = append(w.packs, p)
		}
	}
	return w, nil
}

// End forgets what was referred to. A second call, or one after Run, is harmless.
func (w *Sweep) End() {
	if w.s == nil {
		return
	}
	w.s.sweepMu.Lock()
	defer w.s.sweepMu.Unlock()
	w.s.touched = nil
	w.s = nil
}

// touch notes that a writer referred to h. sweepMu is held for reading.
func (s *Store) touch(h cas.Hash) {
	if s.touched == nil {
		return
	}
	s.touchMu.Lock()
	defer s.touchMu.Unlock()
	s.touched[h] = struct{}{}
}

// isTouched tells whether a writer referred to h since the sweep began.
func (s *Store) isTouched(h cas.Hash) bool {
	s.sweepMu.RLock()
	defer s.sweepMu.RUnlock()
	s.touchMu.Lock()
	defer s.touchMu.Unlock()
	_, touched := s.touched[h]
	return touched
}

// Measure counts what Run would do.
func (w *Sweep) Measure(ctx context.Context, live func(cas.Hash) bool) (cas.SweepStats, error) {
	var stats cas.SweepStats
	leave, err := w.enter()
	if err != nil {
		return stats, err
	}
	defer leave()
	chosen, err := w.choose(ctx, live, &stats)
	if err != nil {
		return stats, fmt.Errorf("measure for a sweep: %w", err)
	}
	for _, c := range chosen {
		stats.RemovedPacks++
		stats.FreedBytes += c.bytes
		if c.live > 0 {
			stats.WrittenBytes += c.live + int64(c.liveCount)*pack.EntryBytes
		}
	}
	if stats.WrittenBytes > 0 {
		stats.MadePacks = int((stats.WrittenBytes + w.s.targetBytes - 1) / w.s.targetBytes)
		stats.WrittenBytes += int64(stats.MadePacks) * (pack.HeaderBytes + pack.TrailerBytes)
	}
	return stats, nil
}

// Run removes and compacts packs. live is called from one goroutine. An error leaves the store whole: what was not
// removed stays.
func (w *Sweep) Run(ctx context.Context, live func(cas.Hash) bool, b cas.SweepBudget) (cas.SweepStats, error) {
	var stats cas.SweepStats
	leave, err := w.enter()
	if err != nil {
		return stats, err
	}
	defer leave()
	s := w.s
	chosen, err := w.choose(ctx, live, &stats)
	if err == nil {
		err = w.compact(ctx, chosen, live, b, &stats)
	}
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	if indexErr := s.compactIndex(); indexErr != nil {
		s.log.Warn("the chunk index can't be compacted yet", "err", indexErr)
	}
	if err != nil {
		return stats, fmt.Errorf("sweep: %w", err)
	}
	return stats, nil
}

// enter keeps the store from being closed.
func (w *Sweep) enter() (leave func(), err error) {
	if w.s == nil {
		return nil, fmt.Errorf("sweep: it has ended")
	}
	if err := w.s.gate.enter(); err != nil {
		return nil, err
	}
	return w.s.gate.leave, nil
}

// census is what a pack holds.
type census struct {
	pack      *packFile
	bytes     int64 // of the file
	live      int64 // bytes of records
	liveCount int
	dead      int64
}

// choose counts what lives, and gives the packs worth removing or compacting: those that free most first, so that a full
// disk has room for the copies of the others.
func (w *Sweep) choose(ctx context.Context, live func(cas.Hash) bool, stats *cas.SweepStats) ([]census, error) {
	var chosen, small []census
	for _, p := range w.packs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, err := w.s.packEntries(p)
		if errors.Is(err, errGone) { // evicted meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", p.name(), err)
		}
		stats.Packs++
		c := census{pack: p, bytes: p.info().Bytes}
		for _, e := range entries {
			if live(e.Hash) || w.s.isTouched(e.Hash) {
				c.live += int64(e.Bytes)
				c.liveCount++
				continue
			}
			c.dead += int64(e.Bytes)
			stats.DeadChunks++
		}
		stats.LiveChunks += int64(c.liveCount)
		stats.LiveBytes += c.live
		stats.DeadBytes += c.dead
		switch {
		case c.dead*100 >= (c.live+c.dead)*sweepDeadPercent:
			chosen = append(chosen, c)
		case (c.live+c.dead)*smallPackFactor < w.s.targetBytes:
			small = append(small, c)
		}
	}
	if len(small) > 1 || len(small) == 1 && len(chosen) > 0 {
		chosen = append(chosen, small...)
	}
	slices.SortStableFunc(chosen, func(a, b census) int { return int(a.live*256/(a.live+a.dead+1) - b.live*256/(b.live+b.dead+1)) })
	return chosen, nil
}

// compact condemns the chosen packs, one by one, and copies what lives in them.
func (w *Sweep) compact(ctx context.Context, chosen []census, live func(cas.Hash) bool, b cas.SweepBudget, stats *cas.SweepStats) error {
	s := w.s
	out := compactor{s: s, stats: stats}
	defer out.abort()
	copied := int64(0)
	for _, c := range chosen {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.CopyBytes > 0 && copied > 0 && copied+c.live > b.CopyBytes {
			stats.Postponed++
			continue
		}
		copied += c.live
		if out.builder != nil && out.builder.Bytes()+c.live > s.targetBytes {
			if err := out.finish(); err != nil {
				return err
			}
		}
		s.sweepMu.Lock()
		c.pack.condemned.Store(true)
		s.sweepMu.Unlock()
		keep := func(e pack.Entry) bool { return live(e.Hash) || s.isTouched(e.Hash) }
		if err := out.add(ctx, c.pack, keep); err != nil {
			c.pack.condemned.Store(false)
			if !errors.Is(err, pack.ErrDamaged) {
				return fmt.Errorf("pack %s: %w", c.pack.name(), err)
			}
			s.log.Error("a pack with a damaged record is not compacted", "pack", c.pack.name(), "err", err)
			stats.DamagedPacks++
		}
		if b.Pace != nil {
			if err := b.Pace(ctx, c.live); err != nil {
				return err
			}
		}
	}
	return out.finish()
}
