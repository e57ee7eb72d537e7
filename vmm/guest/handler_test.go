package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// fakeGuest is a Handler whose commands are Go functions.
type fakeGuest struct {
	mu      sync.Mutex
	starts  map[string]int
	seeds   int
	frozen  bool
	repairs []Repair
	files   map[string][]byte // CopyIn's archives by folder
	down    chan struct{}
}

func newFakeGuest() *fakeGuest {
	return &fakeGuest{starts: map[string]int{}, files: map[string][]byte{}, down: make(chan struct{})}
}

func (g *fakeGuest) Session([]byte) { g.mu.Lock(); g.seeds++; g.mu.Unlock() }

func (g *fakeGuest) Kill(_ context.Context, id string) error { return noExec(id) }

func (g *fakeGuest) Freeze(context.Context, time.Duration) error { g.setFrozen(true); return nil }
func (g *fakeGuest) Thaw(context.Context) error                  { g.setFrozen(false); return nil }
func (g *fakeGuest) setFrozen(f bool)                            { g.mu.Lock(); g.frozen = f; g.mu.Unlock() }

func (g *fakeGuest) Repair(_ context.Context, r Repair, _ time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.repairs = append(g.repairs, r)
	if len(r.Seed) == 0 {
		return &AgentError{Code: CodeFailed, Message: "there is no seed"}
	}
	if r.Thaw {
		g.frozen = false
	}
	return nil
}

func (g *fakeGuest) CopyIn(ctx context.Context, dir string, tar io.Reader) error {
	if dir == "/missing" {
		return &AgentError{Code: CodeNoDir, Message: "/missing isn't there"}
	}
	b, err := io.ReadAll(tar)
	g.mu.Lock()
	g.files[dir] = b
	g.mu.Unlock()
	return err
}

func (g *fakeGuest) CopyOut(_ context.Context, path string, tar io.Writer) error {
	g.mu.Lock()
	b, ok := g.files[path]
	g.mu.Unlock()
	if !ok {
		return &AgentError{Code: CodeNotFound, Message: path + " isn't there"}
	}
	_, err := tar.Write(b)
	return err
}

func (g *fakeGuest) SyncFS(context.Context) error { return nil }
func (g *fakeGuest) Shutdown(context.Context) (func(), error) {
	return func() { close(g.down) }, nil
}

type fakeProcess struct {
	done   chan struct{}
	status ExitStatus
	killed chan struct{}
	once   sync.Once
	events chan string
}

func (p *fakeProcess) Wait() ExitStatus { <-p.done; return p.status }
func (p *fakeProcess) Signal(name string) error {
	p.events <- name
	return nil
}
func (p *fakeProcess) Resize(w WindowSize) error {
	p.events <- fmt.Sprintf("%dx%d", w.Rows, w.Cols)
	return nil
}
func (p *fakeProcess) Kill(ctx context.Context) error {
	p.once.Do(func() { close(p.killed) })
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errKilled = errors.New("killed")

func (g *fakeGuest) Start(r ExecRequest, o Outputs) (Process, error) {
	g.mu.Lock()
	g.starts[r.ID]++
	if r.Thaw {
		g.frozen = false
	}
	g.mu.Unlock()
	p := &fakeProcess{done: make(chan struct{}), killed: make(chan struct{}), events: make(chan string, 8)}
	var run func() int
	switch r.Argv[0] {
	case "echo": // out err code
		run = func() int {
			io.WriteString(o.Stdout, r.Argv[1])
			io.WriteString(o.Stderr, r.Argv[2])
			code, _ := strconv.Atoi(r.Argv[3])
			return code
		}
	case "cat":
		run = func() int { io.Copy(onlyWriter{o.Stdout}, o.Stdin); return 0 }
	case "big": // bytes seed
		n, _ := strconv.Atoi(r.Argv[1])
		run = func() int { io.Copy(onlyWriter{o.Stdout}, pattern(n)); return 0 }
	case "events": // until TERM
		run = func() int {
			for {
				select {
				case e := <-p.events:
					fmt.Fprintln(o.Stdout, e)
					if e == "TERM" {
						return 15
					}
				case <-p.killed:
					return 137
				}
			}
		}
	case "sleep":
		run = func() int {
			io.WriteString(o.Stdout, "asleep\n")
			<-p.killed
			return 137
		}
	default:
		return nil, &AgentError{Code: CodeNoCommand, Message: r.Argv[0] + ": not found"}
	}
	go func() {
		p.status.Code = run()
		close(p.done)
	}()
	return p, nil
}

type onlyWriter struct{ io.Writer }

// pattern gives n bytes that never repeat and hold markers.
func pattern(n int) io.Reader {
	r := rand.New(rand.NewPCG(1, 2))
	at := 0
	return io.LimitReader(readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = byte(r.Uint32())
			if at%5000 < len(marker) {
				p[i] = marker[at%5000]
			}
			at++
		}
		return len(p), nil
	}), int64(n))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// connect gives a client and the server it speaks with, over an in-memory pipe.
func connect(t *testing.T, s *Server, generation uint64) *Client {
	t.Helper()
	c, _, err := dial(t, s, generation)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dial(t *testing.T, s *Server, generation uint64) (*Client, Info, error) {
	t.Helper()
	host, guest := net.Pipe()
	served := make(chan struct{})
	go func() { s.Serve(guest); close(served) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, info, err := Connect(ctx, host, generation)
	t.Cleanup(func() {
		if c != nil {
			c.Close()
		}
		host.Close()
		<-served
	})
	return c, info, err
}
