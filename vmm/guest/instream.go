package guest

import (
	"fmt"
	"io"
	"sync"
)

// inStream is the receiving end of a stream. What arrives waits in a ring no larger than the window; consuming it gives
// the sender credit. One goroutine consumes.
type inStream struct {
	mu      sync.Mutex // guards the rest
	changed sync.Cond
	ring    ring   // ring.base: consumed, ring.end: arrived; counted over all attachments
	origin  uint64 // offset 0 of the present attachment in ring's count
	granted uint64 // how far the sender may send, in ring's count
	acked   uint64 // the last consumed we told, in ring's count
	known   bool   // the first offset is known
	ended   bool
	err     error
	grant   func(consumed, limit uint64) // tells the sender; nil while detached
}

// newInStream makes the end of a stream that begins at offset 0, or, if fromAnywhere, at the first one that arrives.
func newInStream(fromAnywhere bool, grant func(consumed, limit uint64)) *inStream {
	s := &inStream{ring: ring{max: windowBytes}, granted: windowBytes, known: !fromAnywhere, grant: grant}
	s.changed.L = &s.mu
	return s
}

// rebase begins a new attachment, whose sender counts from 0 and thinks it has a whole window.
func (s *inStream) rebase(grant func(consumed, limit uint64)) {
	s.mu.Lock()
	s.origin = s.ring.end
	s.ring.max = s.ring.lenBytes() + windowBytes // what is still here from before doesn't count
	s.granted = s.origin + windowBytes
	s.acked = s.origin
	s.grant = grant
	s.mu.Unlock()
}

// arrive takes the bytes of a DATA frame. It never waits: more than was granted is an error.
func (s *inStream) arrive(off uint64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off > maxOffset {
		return errOffset(off)
	}
	if !s.known {
		s.known = true
		s.start(off)
	}
	at := s.origin + off
	switch {
	case s.err != nil || s.ended:
		return nil // nobody wants it any more
	case at > s.ring.end:
		return fmt.Errorf("bytes %d to %d of a stream are missing: %w", s.ring.end-s.origin, off, ErrOutputLost)
	case at < s.ring.end: // sent again
		again := s.ring.end - at
		if again >= uint64(len(p)) {
			return nil
		}
		p = p[again:]
	}
	if s.ring.end+uint64(len(p)) > s.granted || s.ring.write(p) < len(p) {
		return fmt.Errorf("a stream brought more than the %d bytes it was allowed", windowBytes)
	}
	s.changed.Broadcast()
	return nil
}

// start sets the stream's first offset; its bytes before were consumed by somebody else.
func (s *inStream) start(off uint64) {
	s.ring.base, s.ring.end, s.acked, s.granted = off, off, off, off+windowBytes
}

// startAt does the same for a stream that may never bring a byte.
func (s *inStream) startAt(off uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off > maxOffset {
		return errOffset(off)
	}
	if !s.known {
		s.known = true
		s.start(off)
	}
	return nil
}

// maxOffset is how far a sender is believed to have come, 36 PB: what follows, and the credit for it, still fit into a
// position.
const maxOffset = maxPosition / 2

func errOffset(off uint64) error { return fmt.Errorf("a stream says that it is at byte %d", off) }

// finish says that the stream ends at offset off.
func (s *inStream) finish(off uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.ring.end - s.origin; got != off && s.err == nil && !s.ended {
		return fmt.Errorf("a stream of %d bytes ended after %d: %w", off, got, ErrOutputLost)
	}
	s.ended = true
	s.changed.Broadcast()
	return nil
}

// fail makes every read give err, even when bytes wait.
func (s *inStream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
	s.mu.Unlock()
}

// wait waits for bytes and gives those that lie together. They stay the stream's until consumed. io.EOF at the end.
func (s *inStream) wait() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !s.ended && s.ring.lenBytes() == 0 {
		s.changed.Wait()
	}
	if s.err != nil {
		return nil, s.err
	}
	if p := s.ring.at(s.ring.base); len(p) > 0 {
		return p, nil
	}
	return nil, io.EOF
}

// consumed gives credit for n bytes that wait gave. Small amounts are told later, at the latest by settle.
func (s *inStream) consumed(n int) {
	s.mu.Lock()
	s.ring.discard(s.ring.base + uint64(n))
	due := s.ring.base >= s.origin && s.ring.base-s.acked >= windowBytes/4
	s.mu.Unlock()
	if due {
		s.settle()
	}
}

// settle tells the sender what has been consumed, unless it knows.
func (s *inStream) settle() {
	s.mu.Lock()
	tell := s.grant
	if tell == nil || s.ring.base <= s.acked || s.ring.base < s.origin {
		s.mu.Unlock()
		return
	}
	s.acked = s.ring.base
	s.granted = max(s.granted, s.ring.base+windowBytes)
	s.ring.max = windowBytes + max(0, int(s.origin)-int(s.ring.base))
	consumed, limit := s.ring.base-s.origin, s.granted-s.origin
	s.mu.Unlock()
	tell(consumed, limit)
}

// Read is wait and consumed in one, for those who want a reader.
func (s *inStream) Read(p []byte) (int, error) {
	b, err := s.wait()
	if err != nil {
		return 0, err
	}
	n := copy(p, b)
	s.consumed(n)
	return n, nil
}

// WriteTo is copyTo for io.Copy.
func (s *inStream) WriteTo(w io.Writer) (int64, error) { return 0, s.copyTo(w) }

// copyTo hands every byte to w until the stream ends. A nil w discards.
func (s *inStream) copyTo(w io.Writer) error {
	for {
		p, err := s.wait()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if w != nil {
			if _, err := w.Write(p); err != nil {
				return &writeError{err}
			}
		}
		s.consumed(len(p))
	}
}

// creditFrame encodes a grant.
func creditFrame(generation uint64, id uint32, sub byte, consumed, limit uint64) frame {
	body := make([]byte, 2*positionBytes)
	putPosition(body, consumed)
	putPosition(body[positionBytes:], limit)
	return frame{Type: typeCredit, Sub: sub, Generation: generation, ID: id, Body: body}
}

// writeError marks an error as the caller's writer's.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }
