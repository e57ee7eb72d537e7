package remote

import (
	"context"
	"errors"
	"os"
	"sync"
)

// flights makes each window be fetched once at a time: who comes second waits for the first.
type flights struct {
	mu      sync.Mutex // guards running
	running map[windowKey]*flight
}

// flight is a window being fetched.
type flight struct {
	done chan struct{}
	data []byte // set before done is closed
	err  error
}

// spanWindows is the most windows one request fetches.
const spanWindows = 128 // 4 MiB

// span is a row of windows of one object, at hand: in memory, or as open files of the cache.
type span struct {
	r     *Remote
	o     *object
	first uint32
	parts []part
}

// part is one window: data, or a file.
type part struct {
	data []byte
	file *os.File
}

func (s *span) close() {
	for _, p := range s.parts {
		if p.file != nil {
			p.file.Close()
		}
	}
}

func (s *span) key(i int) windowKey { return windowKey{s.o.hash, s.first + uint32(i)} }

func (f *flights) end(k windowKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, k)
}

// windowsOf gives the first and the last window a record touches.
func windowsOf(p place) (first, last uint32) {
	return p.offset / WindowBytes, uint32((p.end() - 1) / WindowBytes)
}

// windowEnd is where window n of an object ends.
func windowEnd(o *object, n uint32) int64 { return min(int64(n+1)*WindowBytes, o.bytes) }

// openSpan brings windows first to last to hand: from the cache, from flights of others, or fetched.
func (r *Remote) openSpan(ctx context.Context, o *object, first, last uint32) (*span, error) {
	s := &span{r: r, o: o, first: first, parts: make([]part, last-first+1)}
	for {
		lead, wait := s.divide()
		if err := s.fetch(ctx, lead); err != nil {
			s.close()
			return nil, err
		}
		if len(wait) == 0 {
			return s, nil
		}
		// Only now: who waits leads nothing that others wait for.
		again := false
		for i, f := range wait {
			select {
			case <-f.done:
			case <-ctx.Done():
				s.close()
				return nil, ctx.Err()
			}
			switch {
			case f.err == nil:
				s.parts[i].data = f.data
			case errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded):
				again = true // it was the other's context that ended, not ours
			default:
				s.close()
				return nil, f.err
			}
		}
		if !again {
			return s, nil
		}
	}
}

// divide opens what is cached, and tells of the others which to fetch, and on whom to wait.
func (s *span) divide() (lead map[int]*flight, wait map[int]*flight) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.data != nil || p.file != nil {
			continue
		}
		key := s.key(i)
		if p.file = s.r.cache.openWindow(key); p.file != nil {
			s.r.counters.windowHits.Add(1)
			continue
		}
		s.r.flights.mu.Lock()
		f := s.r.flights.running[key]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			s.r.flights.running[key] = f
			if lead == nil {
				lead = map[int]*flight{}
			}
			lead[i] = f
		} else {
			if wait == nil {
				wait = map[int]*flight{}
			}
			wait[i] = f
		}
		s.r.flights.mu.Unlock()
	}
	return lead, wait
}

// fetch reads the windows this span leads, a request for each row of them, and ends their flights.
func (s *span) fetch(ctx context.Context, lead map[int]*flight) error {
	var failed error
	for i := 0; i < len(s.parts); i++ {
		if lead[i] == nil {
			continue
		}
		end := i + 1
		for end < len(s.parts) && lead[end] != nil && end-i < spanWindows {
			end++
		}
		err := failed
		var buf []byte
		start := int64(s.first+uint32(i)) * WindowBytes
		if err == nil {
			buf = make([]byte, windowEnd(s.o, s.first+uint32(end-1))-start)
			err = s.r.getRange(ctx, s.o.key(), buf, start)
		}
		for n := i; n < end; n++ {
			f := lead[n]
			if f.err = err; err != nil {
				s.r.flights.end(s.key(n)) // first, so that who waited and tries again finds it gone
			} else {
				at := int64(n-i) * WindowBytes
				f.data = buf[at:min(at+WindowBytes, int64(len(buf)))]
				s.parts[n].data = f.data
			}
			close(f.done)
		}
		for n := i; err == nil && n < end; n++ { // whoever comes meanwhile finds the flight, and after it the file
			s.r.counters.windowMisses.Add(1)
			s.r.cache.storeWindow(s.key(n), lead[n].data)
			s.r.flights.end(s.key(n))
		}
		failed = err
		i = end - 1
	}
	return failed
}

// record gives a record's bytes, in buf's room where it isn't in one window in memory.
func (s *span) record(p place, buf []byte) ([]byte, error) {
	first, last := windowsOf(p)
	if first == last {
		if data := s.parts[first-s.first].data; data != nil {
			at := int64(p.offset) - int64(first)*WindowBytes
			return data[at : at+int64(p.bytes)], nil
		}
	}
	if cap(buf) < int(p.bytes) {
		buf = make([]byte, p.bytes)
	}
	buf = buf[:p.bytes]
	for n := first; n <= last; n++ {
		start := int64(n) * WindowBytes
		from, to := max(int64(p.offset), start), min(p.end(), start+WindowBytes)
		dst := buf[from-int64(p.offset) : to-int64(p.offset)]
		w := s.parts[n-s.first]
		if w.data != nil {
			copy(dst, w.data[from-start:])
			continue
		}
		if _, err := w.file.ReadAt(dst, from-start); err != nil {
			return nil, errBadWindow
		}
	}
	return buf, nil
}
