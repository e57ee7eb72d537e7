package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/cas/bucket"
)

// GetMany reads many with as few, long and parallel requests as it can; as cas.Store's. When the bucket doesn't answer,
// every ref that isn't at hand gets that error, without a request for each.
func (r *Remote) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := manyGet{r: r, refs: refs, each: each, round: r.rounds.now()}
	all := make([]int, len(refs))
	for i := range all {
		all[i] = i
	}
	if err := m.pass(ctx, all, true); err != nil {
		return err
	}
	if len(m.missed) > 0 {
		if err := m.again(ctx); err != nil {
			return err
		}
	}
	return m.rest(ctx)
}

// pass reads those of which there is a place, where the hints say or the catalogue. The others are missed, and so is what
// can't be read there.
func (m *manyGet) pass(ctx context.Context, which []int, hints bool) error {
	var wanted []wantedRecord
	wanted, m.missed = m.r.plan(m.refs, which, hints)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(m.r.inFlight)
	for _, row := range cutSpans(wanted) {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return m.span(gctx, row) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// again reads what was missed where the catalogue says, refreshed if it says nothing of some of them, or names a pack that is
// gone: all at once, for after a collection in the bucket most hints may be stale.
func (m *manyGet) again(ctx context.Context) error {
	missed := m.missed
	var places [8]place
	if m.outage == nil && (m.gone || slices.ContainsFunc(missed, func(i int) bool { return len(m.r.index.locate(places[:0], m.refs[i].Hash)) == 0 })) {
		if err := m.r.refreshSince(ctx, m.round); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.outage = err
		}
	}
	if m.outage != nil {
		return nil
	}
	return m.pass(ctx, missed, false)
}

// rest answers for what is still missed: most of it is lost, or can't be had now.
func (m *manyGet) rest(ctx context.Context) error {
	for _, i := range m.missed {
		if err := ctx.Err(); err != nil {
			return err
		}
		plain, err := m.plain[:0], m.outage
		if err == nil {
			if plain, err = m.r.getByIndex(ctx, m.refs[i].Hash, plain, m.round); err == nil {
				m.plain = plain
			} else if ctx.Err() != nil {
				return ctx.Err()
			} else if !permanent(err) {
				m.outage = err
			}
		}
		if err != nil {
			plain = nil
		}
		if err := m.each(i, plain, err); err != nil {
			return err
		}
	}
	return nil
}

// wantedRecord is where ref i should be.
type wantedRecord struct {
	place
	ref int
}

// plan finds the places of some refs, in the order of reading; those without one are missed.
func (r *Remote) plan(refs []cas.Ref, which []int, hints bool) (wanted []wantedRecord, missed []int) {
	wanted = make([]wantedRecord, 0, len(which))
	var places [8]place
	for _, i := range which {
		ref := refs[i]
		p, ok := r.index.hinted(ref.Hint)
		if !ok || !hints {
			found := r.index.locate(places[:0], ref.Hash)
			if len(found) == 0 {
				missed = append(missed, i)
				continue
			}
			p = found[0]
		}
		wanted = append(wanted, wantedRecord{p, i})
	}
	slices.SortFunc(wanted, func(a, b wantedRecord) int {
		if a.object != b.object {
			if c := a.object.created.Compare(b.object.created); c != 0 {
				return c
			}
			return bytes.Compare(a.object.hash[:], b.object.hash[:])
		}
		return cmp.Compare(a.offset, b.offset)
	})
	return wanted, missed
}

// cutSpans splits sorted records into rows that one request can fetch: in windows side by side, no more than spanWindows.
func cutSpans(wanted []wantedRecord) [][]wantedRecord {
	var rows [][]wantedRecord
	for first := 0; first < len(wanted); {
		start, end := windowsOf(wanted[first].place)
		last := first + 1
		for ; last < len(wanted); last++ {
			from, to := windowsOf(wanted[last].place)
			if wanted[last].object != wanted[first].object || from > end+1 || max(to, end)-start >= spanWindows {
				break
			}
			end = max(to, end)
		}
		rows = append(rows, wanted[first:last])
		first = last
	}
	return rows
}

// manyGet is a GetMany that runs.
type manyGet struct {
	r     *Remote
	refs  []cas.Ref
	round uint64 // of refreshes, at the beginning

	mu     sync.Mutex // serialises each, and guards the rest
	each   func(i int, data []byte, err error) error
	missed []int
	outage error // the bucket doesn't answer
	gone   bool  // a pack wasn't there
	ended  error
	plain  []byte // of those that are read alone
}

// span reads a row of windows and hands its chunks out. What can't be read here is missed.
func (m *manyGet) span(ctx context.Context, row []wantedRecord) error {
	first, last := windowsOf(row[0].place)
	for _, w := range row {
		_, end := windowsOf(w.place)
		last = max(last, end)
	}
	m.mu.Lock()
	readErr := m.outage
	m.mu.Unlock()
	var s *span
	if readErr == nil {
		if s, readErr = m.r.openSpan(ctx, row[0].object, first, last); readErr == nil {
			defer s.close()
		} else if ctx.Err() != nil {
			return ctx.Err()
		} else if !elsewhere(readErr) {
			readErr = m.r.explain(m.refs[row[0].ref].Hash, row[0].place, readErr)
			m.mu.Lock()
			m.outage = readErr
			m.mu.Unlock()
		} else if errors.Is(readErr, bucket.ErrNotFound) {
			m.mu.Lock()
			m.gone = true
			m.mu.Unlock()
		}
	}
	var plain, room []byte
	for _, w := range row {
		err := readErr
		if err == nil {
			plain, room, err = s.chunk(w.place, m.refs[w.ref].Hash, plain[:0], room)
		}
		if err := m.hand(w.ref, plain, err); err != nil {
			return err
		}
	}
	return nil
}

// hand calls each, unless it has ended the whole, or puts the ref aside.
func (m *manyGet) hand(ref int, plain []byte, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		return m.ended
	}
	if err != nil {
		m.missed = append(m.missed, ref)
		return nil
	}
	m.ended = m.each(ref, plain, nil)
	return m.ended
}
