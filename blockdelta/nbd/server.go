package nbd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"flash/blockdelta"
)

// Server serves overlays by name on one unix socket.
type Server struct {
	listener net.Listener
	log      *slog.Logger
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	inFlight atomic.Int64
	running  sync.WaitGroup // the accept loop and the connections

	mu       sync.Mutex // guards the rest; never held across I/O
	overlays map[string]*blockdelta.Overlay
	conns    map[net.Conn]struct{}
	closed   bool
}

// Config is what a server may be told. The zero Config works.
type Config struct {
	Log *slog.Logger // of broken connections and failed requests; nil: none
}

// Listen makes the socket, readable and writable by this user only, and serves there until Close. It has no exports
// yet: a client that comes too early is refused and may come again.
func Listen(path string) (*Server, error) { return Config{}.Listen(path) }

// Listen is Listen with this configuration.
func (c Config) Listen(path string) (*Server, error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("serve disks at %s: %w", path, err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{listener: l, log: c.Log.With("socket", path), ctx: ctx, cancel: cancel,
		overlays: make(map[string]*blockdelta.Overlay), conns: make(map[net.Conn]struct{})}
	s.running.Go(s.acceptAll)
	return s, nil
}

// listenUnix takes over the socket of a server that is no more, but not that of one that answers.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if c, dialErr := net.DialTimeout("unix", path, time.Second); dialErr == nil {
			_ = c.Close()
			return nil, err
		}
		if removeErr := os.Remove(path); removeErr != nil {
			return nil, errors.Join(err, removeErr)
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// SetExport binds a name to an overlay, or with nil unbinds it. Clients that have chosen it already keep what they
// have. The overlay must stay open until the server is closed.
func (s *Server) SetExport(name string, overlay *blockdelta.Overlay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if overlay == nil {
		delete(s.overlays, name)
		return
	}
	s.overlays[name] = overlay
}

// InFlight counts the requests that have arrived and may still touch an overlay. A client that has its last answer
// finds it 0.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// Close ends all connections, removes the socket and returns when no request is in flight. Closing twice is harmless.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // only ends it; its goroutine says if something was wrong
	}
	s.mu.Unlock()
	s.cancel()
	var err error
	if first {
		err = s.listener.Close()
	}
	s.running.Wait()
	return err
}

func (s *Server) export(name string) (*blockdelta.Overlay, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.overlays[name]
	return o, ok
}

func (s *Server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.overlays {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Server) acceptAll() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely: others may be closed soon
			s.log.Error("accept a disk connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		if !s.add(c) {
			_ = c.Close()
			continue
		}
		s.running.Go(func() {
			defer s.remove(c)
			if err := s.serve(c); err != nil && s.ctx.Err() == nil {
				s.log.Warn("a disk connection ended", "error", err)
			}
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c net.Conn) {
	_ = c.Close() // closed by Close, perhaps
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) serve(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(handshakeDeadline)); err != nil {
		return err
	}
	n := negotiation{conn: c, exports: s}
	overlay, err := n.run()
	if err != nil {
		if errors.Is(err, errAborted) {
			return nil
		}
		return fmt.Errorf("handshake: %w", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil { // a guest may be idle for ever
		return err
	}
	t := transmission{
		conn: c, overlay: overlay, inFlight: &s.inFlight, failed: s.logFailure,
		requests: semaphore.NewWeighted(maxConnRequests), bytes: semaphore.NewWeighted(maxConnInFlightBytes),
		onBreak: func() { _ = c.Close() },
	}
	return t.run(s.ctx)
}

func (s *Server) logFailure(q request, err error) {
	if s.ctx.Err() == nil {
		s.log.Error("a disk request failed", "command", q.command, "offset", q.offset, "length", q.length, "error", err)
	}
}
