package guest

import (
	"context"
	"sync"
)

// windowBytes is how much may be under way in a stream without having been consumed. At a round trip of 1 ms it allows
// 256 MB/s, more than a virtio serial port carries.
const windowBytes = 256 << 10

// outStream is the sending end of a stream. What is written to it waits in a ring until the other end has consumed it; a
// full ring makes the writer wait. Detached from its link it goes on collecting, and can be attached to another.
//
//	base ≤ acknowledged = ring.base ≤ sent ≤ ring.end, sent ≤ limit while attached
type outStream struct {
	mu         sync.Mutex // guards the rest
	changed    sync.Cond
	ring       ring
	sent       uint64
	limit      uint64
	ended      bool // no more will be written
	endSent    bool
	announce   bool // END is sent when everything else has been
	lost       bool // bytes were dropped before they were consumed
	killed     bool // rather drop bytes than wait for somebody to attach
	trash      []byte
	link       *link
	generation uint64
	id         uint32
	sub        byte
}

func newOutStream(maxBytes int) *outStream {
	s := &outStream{ring: ring{max: maxBytes}}
	s.changed.L = &s.mu
	return s
}

// attach sends from offset from on over a link; negative: from what is still there. It says where that is.
func (s *outStream) attach(l *link, generation uint64, id uint32, sub byte, from int64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.ring.base
	if from >= 0 {
		if uint64(from) < s.ring.base || s.lost && uint64(from) < s.ring.end {
			return 0, outputLost(from, s.ring.base)
		}
		if uint64(from) > s.ring.end {
			return 0, &AgentError{Code: CodeInvalid, Message: "asked for output that the command has not written yet"}
		}
		start = uint64(from)
	} else if s.lost {
		return 0, outputLost(int64(s.ring.base), s.ring.end)
	}
	s.ring.discard(start)
	s.sent, s.limit = start, start+windowBytes
	s.link, s.generation, s.id, s.sub, s.endSent = l, generation, id, sub, false
	l.queue(s)
	s.changed.Broadcast()
	return start, nil
}

// detach stops sending if this request is still the one attached.
func (s *outStream) detach(l *link, generation uint64, id uint32) {
	s.mu.Lock()
	if s.attachedTo(l, generation, id) {
		s.link = nil
		s.changed.Broadcast()
	}
	s.mu.Unlock()
}

func (s *outStream) attachedTo(l *link, generation uint64, id uint32) bool {
	return s.link == l && s.generation == generation && s.id == id
}

// Write waits for room. After end it discards, so that whoever still holds the stream open isn't hurt.
func (s *outStream) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		s.mu.Lock()
		s.waitRoom()
		if s.ended {
			s.mu.Unlock()
			return len(p), nil
		}
		m := s.ring.write(p[n:])
		s.mu.Unlock()
		n += m
		s.kick()
	}
	return n, nil
}

// waitRoom waits until there is room, or the stream has ended. s.mu is held.
func (s *outStream) waitRoom() {
	for !s.ended && s.ring.roomBytes() == 0 {
		if s.killed && s.link == nil {
			s.lost = true
			s.ring.drop()
			return
		}
		s.changed.Wait()
	}
}

// kill makes writers drop bytes rather than wait for somebody to attach.
func (s *outStream) kill() {
	s.mu.Lock()
	s.killed = true
	s.changed.Broadcast()
	s.mu.Unlock()
}

// Fill lets read put bytes straight into the ring, once. It waits for room first, and calls read with its lock held, so
// read mustn't wait; it gives read's error. After end it discards.
func (s *outStream) Fill(read func(p []byte) (int, error)) (int, error) {
	s.mu.Lock()
	s.waitRoom()
	if s.ended {
		if s.trash == nil {
			s.trash = make([]byte, ringFirstBytes)
		}
		defer s.mu.Unlock()
		return read(s.trash)
	}
	n, err := read(s.ring.space())
	if n > 0 {
		s.ring.filled(n)
	}
	s.mu.Unlock()
	if n > 0 {
		s.kick()
	}
	return n, err
}

// end says that no more will be written. Writers that wait give up.
func (s *outStream) end() {
	s.mu.Lock()
	s.ended = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.kick()
}

func (s *outStream) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// kick tells the link that there may be something to send.
func (s *outStream) kick() {
	s.mu.Lock()
	l := s.link
	want := s.sent < min(s.ring.end, s.limit) || s.announce && s.ended && !s.endSent
	s.mu.Unlock()
	if l != nil && want {
		l.queue(s)
	}
}

// fill encodes the next frame into buf and tells whether there is another one to send.
func (s *outStream) fill(buf []byte) (p []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil, false
	}
	f := frame{Type: typeData, Sub: s.sub, Generation: s.generation, ID: s.id}
	end := min(s.ring.end, s.limit)
	if n := min(int(end-s.sent), maxDataBytes); n > 0 {
		p = buf[:headerBytes+positionBytes+n]
		putPosition(p[headerBytes:], s.sent)
		s.ring.copyAt(p[headerBytes+positionBytes:], s.sent)
		n = cutInsideMarker(p[headerBytes+positionBytes:])
		p = p[:headerBytes+positionBytes+n]
		s.sent += uint64(n)
	} else if s.announce && s.ended && !s.endSent && s.sent == s.ring.end {
		f.Type = typeEnd
		p = buf[:headerBytes+positionBytes]
		putPosition(p[headerBytes:], s.ring.end)
		s.endSent = true
	} else {
		return nil, false
	}
	putHeader(p, f)
	s.changed.Broadcast()
	return p, s.sent < end || s.announce && s.ended && !s.endSent && s.sent == s.ring.end
}

// credit takes the other end's word on what it has consumed and what may be sent.
func (s *outStream) credit(l *link, generation uint64, id uint32, consumed, limit uint64) {
	s.mu.Lock()
	if s.attachedTo(l, generation, id) && consumed <= s.sent {
		s.ring.discard(consumed)
		if s.ended && s.ring.lenBytes() == 0 {
			s.ring.drop()
		}
		s.limit = max(s.limit, limit)
		s.changed.Broadcast()
	}
	s.mu.Unlock()
	s.kick()
}

// waitSent waits until everything has been sent after end, and tells how long the stream is. It tells false when the
// request isn't attached any more.
func (s *outStream) waitSent(ctx context.Context, l *link, generation uint64, id uint32) (uint64, bool) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.changed.Broadcast()
		s.mu.Unlock()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.attachedTo(l, generation, id) && ctx.Err() == nil && !(s.ended && s.sent == s.ring.end) {
		s.changed.Wait()
	}
	return s.ring.end, s.attachedTo(l, generation, id) && ctx.Err() == nil
}

// keptBytes is how much is kept because nobody has consumed it.
func (s *outStream) keptBytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.lenBytes()
}

// forget drops what is kept; whoever attaches afterwards is told.
func (s *outStream) forget() {
	s.mu.Lock()
	s.lost = s.lost || s.ring.lenBytes() > 0
	s.ring.drop()
	s.mu.Unlock()
}
