package guest

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Server is the guest's end of the conversation. It outlives channels and sessions: execs and their output stay.
type Server struct {
	handler Handler
	info    Info
	serving sync.Mutex // one channel at a time
	execs   execTable

	mu      sync.Mutex // guards the rest
	session *session   // nil before the first HELLO and after the channel's end
	begun   bool       // generation is set
	newest  uint64     // greatest generation
}

// NewServer makes one; info's Protocol is filled in.
func NewServer(h Handler, info Info) *Server {
	info.Protocol = Protocol
	return &Server{handler: h, info: info, execs: execTable{byID: map[string]*execution{}}}
}

// ErrServing says that a Server has a channel already.
var ErrServing = errors.New("another channel is being served")

// Serve speaks with a host over conn until conn ends or fails; then it closes conn. io.EOF gives nil.
func (s *Server) Serve(conn io.ReadWriteCloser) error {
	if !s.serving.TryLock() {
		conn.Close()
		return ErrServing
	}
	defer s.serving.Unlock()
	l := newLink(conn)
	wrote := make(chan error, 1)
	go func() {
		err := l.run()
		if err != nil {
			conn.Close() // wakes the reader
		}
		wrote <- err
	}()
	err := s.read(conn, l)
	s.mu.Lock()
	old := s.session
	s.session = nil
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	l.close()
	conn.Close()
	if werr := <-wrote; werr != nil {
		err = werr
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read never waits for anything but the channel.
func (s *Server) read(conn io.Reader, l *link) error {
	var d decoder
	for {
		n, err := conn.Read(d.space())
		d.filled(n)
		for f, ok := d.next(); ok; f, ok = d.next() {
			s.take(l, f)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) take(l *link, f frame) {
	if f.Type == typeHello {
		s.greet(l, f)
		return
	}
	s.mu.Lock()
	ss := s.session
	s.mu.Unlock()
	if ss == nil || f.Generation != ss.generation {
		return // of a former life, or before any
	}
	ss.take(f)
}

// greet begins a session, or says why not. A repeated HELLO gets its answer again.
func (s *Server) greet(l *link, f frame) {
	h, err := decodeHello(f.Body)
	if err != nil {
		return
	}
	answer := frame{Type: typeAck, Generation: f.Generation}
	ack := ackBody{Nonce: h.Nonce, Info: s.info}
	s.mu.Lock()
	old, newest, begun := s.session, s.newest, s.begun
	s.mu.Unlock()
	switch {
	case h.Protocol != Protocol:
		ack.Code = CodeProtocol
		ack.Message = fmt.Sprintf("this agent speaks protocol %d, not %d", Protocol, h.Protocol)
	case old != nil && old.generation == f.Generation && old.nonce == h.Nonce:
	case begun && f.Generation <= newest:
		ack.Code = CodeStale
		ack.Message = fmt.Sprintf("generation %d is over: this guest has already heard %d", f.Generation, newest)
	default:
		if old != nil {
			old.end()
		}
		l.reset()
		ss := newSession(s, l, f.Generation, h.Nonce)
		s.mu.Lock()
		s.session, s.newest, s.begun = ss, f.Generation, true
		s.mu.Unlock()
		s.handler.Session(h.Seed)
	}
	if ack.Code != "" {
		answer.Type = typeRefuse
	}
	answer.Body, _ = encodeBody(ack) // short and ours
	l.send(answer)
}
