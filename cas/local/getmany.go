package local

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"flash/cas"
)

const (
	maxGapBytes    = 64 << 10 // read over rather than read twice
	maxWindowBytes = 1 << 20
	minWindowBytes = 128 << 10 // smaller ones are not worth a goroutine
)

// GetMany reads records that lie near each other with one read, and decodes in parallel.
func (s *Store) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	if err := s.gate.enter(); err != nil {
		return err
	}
	defer s.gate.leave()
	wanted, alone := s.plan(refs)
	m := manyGet{s: s, refs: refs, each: each}
	windows := cutWindows(wanted, s.workers)
	if err := m.windows(ctx, windows); err != nil {
		return err
	}
	// What has no place, or wasn't where it should be, takes the way through the index.
	for _, i := range append(alone, m.missed...) {
		if err := ctx.Err(); err != nil {
			return err
		}
		plain, err := s.getByIndex(refs[i].Hash, m.plain[:0])
		if err == nil {
			m.plain = plain
		} else {
			plain = nil
		}
		if err := each(i, plain, err); err != nil {
			return err
		}
	}
	return nil
}

// wantedRecord is where ref i should be.
type wantedRecord struct {
	location
	ref int
}

func (w wantedRecord) end() uint32 { return w.offset + w.bytes }

// plan finds the place of every ref, in the order of reading; those without one are alone.
func (s *Store) plan(refs []cas.Ref) (wanted []wantedRecord, alone []int) {
	wanted = make([]wantedRecord, 0, len(refs))
	var places [8]location
	for i, r := range refs {
		l := location{s.packs.byID(r.Hint.Pack), r.Hint.Offset, r.Hint.Bytes}
		if l.pack == nil {
			found, err := s.index.locate(places[:0], r.Hash)
			if err != nil || len(found) == 0 {
				alone = append(alone, i)
				continue
			}
			l = found[0]
		}
		if !readable(l) {
			alone = append(alone, i)
			continue
		}
		wanted = append(wanted, wantedRecord{l, i})
	}
	slices.SortFunc(wanted, func(a, b wantedRecord) int {
		if a.pack != b.pack {
			if c := comparePacks(a.pack, b.pack); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.offset, b.offset)
	})
	return wanted, alone
}

// cutWindows splits sorted records into parts that are read at once: near enough, and no longer than a window. There
// are enough windows for all workers, if that leaves them long enough to be worth it.
func cutWindows(wanted []wantedRecord, workers int) [][]wantedRecord {
	total := int64(0)
	for _, w := range wanted {
		total += int64(w.bytes)
	}
	limit := int64(maxWindowBytes)
	if workers > 1 {
		limit = min(max(total/int64(workers)+1, minWindowBytes), maxWindowBytes)
	}
	var windows [][]wantedRecord
	for first := 0; first < len(wanted); {
		last, end := first+1, wanted[first].end()
		for ; last < len(wanted); last++ {
			w := wanted[last]
			if w.pack != wanted[first].pack || int64(w.offset) > int64(end)+maxGapBytes ||
				int64(max(w.end(), end))-int64(wanted[first].offset) > limit {
				break
			}
			end = max(w.end(), end)
		}
		windows = append(windows, wanted[first:last])
		first = last
	}
	return windows
}

// manyGet is a GetMany that runs.
type manyGet struct {
	s    *Store
	refs []cas.Ref

	mu     sync.Mutex // serialises each, and guards the rest
	each   func(i int, data []byte, err error) error
	missed []int
	ended  error
	plain  []byte // of those that are read alone
}

func (m *manyGet) windows(ctx context.Context, windows [][]wantedRecord) error {
	workers := min(m.s.workers, len(windows))
	if workers <= 1 {
		for _, w := range windows {
			if err := m.window(ctx, w); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(windows) {
					return nil
				}
				if err := m.window(ctx, windows[i]); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// window reads one window and hands its chunks out. A window that can't be read is missed whole.
func (m *manyGet) window(ctx context.Context, w []wantedRecord) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	end := w[0].end()
	for _, r := range w {
		end = max(end, r.end())
	}
	pooled := m.s.buffers.Get().(*[]byte)
	defer m.s.buffers.Put(pooled)
	start, n := w[0].offset, int(end-w[0].offset)
	if cap(*pooled) < n {
		*pooled = make([]byte, n)
	}
	buf := (*pooled)[:n]
	readErr := m.s.readPack(w[0].pack, buf, int64(start))
	decoded := m.s.buffers.Get().(*[]byte)
	defer m.s.buffers.Put(decoded)
	for _, r := range w {
		err := readErr
		var plain []byte
		if err == nil {
			plain, err = m.s.decode(buf[r.offset-start:r.end()-start], m.refs[r.ref].Hash, (*decoded)[:0])
			*decoded = plain
		}
		if err := m.hand(r.ref, plain, err); err != nil {
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
