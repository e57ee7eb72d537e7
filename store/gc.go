package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
)

// GCOptions says what a collection does. The zero value measures what one would free, by the rules that were set.
type GCOptions struct {
	Apply     bool
	VMs       []string   // whose histories are thinned; nil: all
	Retention *Retention // instead of the rules that were set
	Budget    cas.SweepBudget
}

// RemovedCheckpoint is one that retention has removed, or would.
type RemovedCheckpoint struct {
	VM       string    `json:"flashvm"`
	Number   int       `json:"number"`
	Label    string    `json:"label"`
	Created  time.Time `json:"created"`
	NewBytes int64     `json:"new_bytes"`
}

// GCReport says what a collection found and did, or, not applied, would do.
type GCReport struct {
	Applied   bool                `json:"applied"`
	Removed   []RemovedCheckpoint `json:"removed"`
	Snapshots int                 `json:"snapshots"` // roots, held ones included
	Sweep     cas.SweepStats      `json:"sweep"`
	Freed     int64               `json:"freed_bytes"` // what was written for it taken off
	Took      time.Duration       `json:"took_ns"`
}

// GC thins the histories and removes chunks that nothing reaches, beside everything else the store does.
//
// The order is what keeps it safe (I4): the sweep begins before the roots are collected, so that whatever is referred to
// from then on stays. What is put before belongs to an open transaction or to a name, and so is marked.
func (s *Store) GC(ctx context.Context, o GCOptions) (GCReport, error) {
	r := GCReport{Applied: o.Apply, Removed: []RemovedCheckpoint{}}
	began := time.Now()
	err := s.collect(ctx, o, &r)
	r.Took = time.Since(began)
	if err != nil {
		return r, fmt.Errorf("gc: %w", err)
	}
	return r, nil
}

func (s *Store) collect(ctx context.Context, o GCOptions, r *GCReport) error {
	chunks, ok := s.chunks.(sweeper)
	if !ok {
		return ErrUnsupported
	}
	done, err := s.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	without, err := s.retain(ctx, o, r)
	if err != nil {
		return err
	}
	if o.Apply {
		// Before the sweep, so that what the packs tell of names never names what the sweep has taken.
		s.tryCatalogue(ctx)
	}
	garbage := s.garbage.take()
	settled := false
	defer func() {
		if !settled {
			s.garbage.giveBack(garbage)
		}
	}()
	sweep, err := chunks.BeginSweep(ctx)
	if err != nil {
		return err
	}
	defer sweep.End()
	live := liveSet{}
	if r.Snapshots, err = s.mark(ctx, without, live.add); err != nil {
		return err
	}
	if !o.Apply {
		r.Sweep, err = sweep.Measure(ctx, live.has)
		r.Freed = r.Sweep.FreedBytes - r.Sweep.WrittenBytes
		return err
	}
	r.Sweep, err = sweep.Run(ctx, live.has, o.Budget)
	r.Freed = r.Sweep.FreedBytes - r.Sweep.WrittenBytes
	if err != nil {
		return err
	}
	settled = r.Sweep.Postponed == 0
	for {
		n, err := s.ForgetWorkingSets(ctx)
		if err != nil {
			return err
		}
		if n < deleteKeys {
			break
		}
	}
	return s.compactDatabase(len(r.Removed))
}

// flattenAfter is how many removed checkpoints are worth a compaction of the database: some megabytes of records.
const flattenAfter = 10_000

// compactDatabase lets go of what was deleted; Badger would do it too, in its own time.
func (s *Store) compactDatabase(removed int) error {
	if removed < flattenAfter {
		return nil
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.db.Flatten(1)
}

// retain thins the histories, or says what thinning would remove, by VM.
func (s *Store) retain(ctx context.Context, o GCOptions, r *GCReport) (without map[string]map[int]bool, err error) {
	plan, err := s.plan(ctx, o)
	if err != nil {
		return nil, err
	}
	without = map[string]map[int]bool{}
	for _, p := range plan {
		going := p.going
		if o.Apply {
			var numbers []int
			for _, c := range going {
				numbers = append(numbers, c.Number)
			}
			going, err = s.thin(ctx, p.vm, numbers)
		}
		without[p.vm] = map[int]bool{}
		for _, c := range going {
			without[p.vm][c.Number] = true
			r.Removed = append(r.Removed, RemovedCheckpoint{p.vm, c.Number, c.Label, c.Created, c.NewBytes})
		}
		if err != nil {
			return nil, fmt.Errorf("thin the history of flashvm %s: %w", p.vm, err)
		}
	}
	if o.Apply {
		without = nil // they are no roots any more
	}
	return without, nil
}

type thinPlan struct {
	vm    string
	going []Checkpoint
}

func (s *Store) plan(ctx context.Context, o GCOptions) (plan []thinPlan, err error) {
	rules := map[string]Retention{}
	if o.Retention == nil {
		if rules, err = s.Retentions(ctx); err != nil || len(rules) == 0 && len(o.VMs) == 0 {
			return nil, err
		}
	} else if err := o.Retention.Check(); err != nil {
		return nil, err
	}
	vms, err := s.VMs(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range o.VMs {
		if !slices.ContainsFunc(vms, func(v VM) bool { return v.ID == id }) {
			return nil, fmt.Errorf("flashvm %s: %w", id, ErrNotFound)
		}
	}
	now := s.now()
	for _, v := range vms {
		if o.VMs != nil && !slices.Contains(o.VMs, v.ID) {
			continue
		}
		rule, own := rules[v.ID]
		if !own {
			rule = rules[""]
		}
		if o.Retention != nil {
			rule = *o.Retention
		}
		if rule.IsZero() {
			continue
		}
		var h *historyTree
		err := s.view(ctx, func(tx *badger.Txn) (err error) { h, err = readTree(tx, v.ID); return err })
		if errors.Is(err, ErrNotFound) { // removed since
			continue
		}
		if err != nil {
			return nil, err
		}
		going := rule.chooses(h.all, now, func(c *Checkpoint) bool { return h.staysFor(c) != "" })
		if len(going) > 0 {
			plan = append(plan, thinPlan{v.ID, going})
		}
	}
	return plan, nil
}

// liveSet is the marks, 8 bytes of each hash: of 2^32 chunks about two share them with another, and a chunk that is
// taken for a living one only stays longer.
type liveSet map[uint64]struct{}

func (l liveSet) add(h cas.Hash) { l[binary.LittleEndian.Uint64(h[:])] = struct{}{} }

func (l liveSet) has(h cas.Hash) bool {
	_, ok := l[binary.LittleEndian.Uint64(h[:])]
	return ok
}

// garbageMeter estimates what a collection would find, from what was removed and aborted since the last one.
type garbageMeter struct {
	bytes   atomic.Int64
	unknown atomic.Bool // since Open, and since a bundle was removed, whose share nobody knows
}

type garbageReading struct {
	bytes   int64
	unknown bool
}

func (g *garbageMeter) add(bytes int64) { g.bytes.Add(bytes) }

func (g *garbageMeter) take() garbageReading {
	return garbageReading{g.bytes.Swap(0), g.unknown.Swap(false)}
}

func (g *garbageMeter) giveBack(r garbageReading) {
	g.bytes.Add(r.bytes)
	if r.unknown {
		g.unknown.Store(true)
	}
}

// Garbage estimates how many bytes a collection would free. Not known: none has run since the store was opened.
func (s *Store) Garbage() (bytes int64, known bool) {
	return s.garbage.bytes.Load(), !s.garbage.unknown.Load()
}

// Due says how many checkpoints the saved rules would remove now.
func (s *Store) Due(ctx context.Context) (n int, err error) {
	plan, err := s.plan(ctx, GCOptions{})
	for _, p := range plan {
		n += len(p.going)
	}
	return n, err
}
