package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"flash/vmm/host"
)

const (
	headerTimeout  = 10 * time.Second // for a request's header to arrive
	idleTimeout    = 2 * time.Minute  // between requests of one connection
	maxHeaderBytes = 32 << 10
)

// Config is what a server needs.
type Config struct {
	API      host.API
	Log      *slog.Logger // nil: none
	Shutdown func()       // called once by POST shutdown, must not wait; nil: that route is unsupported

	headerTimeout time.Duration // 0: headerTimeout; tests wait for less
}

// Server serves a host.API. It is an http.Handler of every route, without a check of who asks; Serve and ServeTCP
// are that check.
type Server struct {
	api            host.API
	log            *slog.Logger
	shutdown       func()
	handler        http.Handler
	metricsHandler http.Handler
	header         time.Duration

	running context.Context // ends when requests must
	end     context.CancelFunc
	endless context.Context // ends as soon as a shutdown begins: what would never end by itself, followed logs
	endAll  context.CancelFunc

	mu       sync.Mutex // guards the rest
	serving  []*http.Server
	closed   bool
	upgraded sync.WaitGroup // hijacked connections, which http.Server.Shutdown doesn't know
}

// New makes a server; it serves nothing yet.
func New(c Config) *Server {
	s := &Server{api: c.API, log: c.Log, shutdown: c.Shutdown, header: cmp.Or(c.headerTimeout, headerTimeout)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.metricsHandler = newMetrics(c.API)
	s.running, s.end = context.WithCancel(context.Background())
	s.endless, s.endAll = context.WithCancel(s.running)
	s.handler = s.routes()
	return s
}

// ServeHTTP answers one request. A panic is told to the client as an internal failure and doesn't end the daemon.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			writeError(w, host.Errorf(host.CodeInternal, "report this with the daemon's log", "a bug in %s %s: %v", r.Method, r.URL.Path, p))
		}
	}()
	s.handler.ServeHTTP(w, r)
}

// Serve answers whoever can open a unix socket until Shutdown; it closes l. Another kind of listener is refused:
// it needs ServeTCP's token.
func (s *Server) Serve(l net.Listener) error {
	if n := l.Addr().Network(); n != "unix" {
		l.Close()
		return fmt.Errorf("serve %s without a token: only a unix socket has permissions of its own", l.Addr())
	}
	return s.serve(l, s)
}

// ServeTCP answers whoever sends the token until Shutdown; it closes l.
func (s *Server) ServeTCP(l net.Listener, token string) error {
	if err := checkToken(token); err != nil {
		l.Close()
		return host.Errorf(host.CodeInvalid, "write a longer one into the token file, or remove the file: a new one is made", "serve %s: %w", l.Addr(), err)
	}
	return s.serve(l, withToken(token, s))
}

func (s *Server) serve(l net.Listener, h http.Handler) error {
	hs := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.header,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return s.running },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.serving = append(s.serving, hs)
	s.mu.Unlock()
	if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown takes no new requests, ends followed logs, and waits for the requests under way until ctx ends; then it
// cancels them and waits for them still. It returns with no request running.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	serving := s.serving
	s.mu.Unlock()
	s.endAll()
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	defer s.end()
	for _, hs := range serving {
		hs.Shutdown(ctx)
	}
	idle := make(chan struct{})
	go func() { s.upgraded.Wait(); close(idle) }()
	<-idle // upgraded connections end with s.running, which ends with ctx
	for _, hs := range serving {
		hs.Close()
	}
	return ctx.Err()
}

// adopt counts a connection that is about to be hijacked. false: the server is closing.
func (s *Server) adopt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.upgraded.Add(1)
	return true
}

// untilShutdown ends with ctx or as soon as a shutdown begins.
func (s *Server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.endless, cancel)
	return ctx, func() { stop(); cancel() }
}
