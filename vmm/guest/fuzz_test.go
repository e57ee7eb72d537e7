package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fuzzer never hits upon a checksum, so what it makes are bodies with what the header says of them, and the frames are
// made of these: type, sub, id, length in 2 bytes, body. The framing itself is FuzzDecoder's.
const madeBytes = 5

// framesFrom makes valid frames of a generation out of p.
func framesFrom(p []byte, generation uint64) (wire []byte) {
	for len(p) >= madeBytes {
		f := frame{Type: 1 + frameType(p[0])%(typeLimit-1), Sub: p[1], Generation: generation, ID: uint32(p[2])}
		n := min(int(binary.LittleEndian.Uint16(p[3:])), len(p)-madeBytes)
		f.Body = bytes.ReplaceAll(p[madeBytes:madeBytes+n], marker[:], nil)
		p = p[madeBytes+n:]
		if !bytes.Contains(f.Body, marker[:]) {
			wire = appendFrame(wire, f)
		}
	}
	return wire
}

// made is framesFrom's inverse, for seeds.
func made(frames ...frame) (p []byte) {
	for _, f := range frames {
		p = append(p, byte(f.Type-1), f.Sub, byte(f.ID), byte(len(f.Body)), byte(len(f.Body)>>8))
		p = append(p, f.Body...)
	}
	return p
}

// requestOf, dataOf and the like are what a peer sends.
func requestOf(id uint32, op byte, body string) frame {
	return frame{Type: typeRequest, Sub: op, ID: id, Body: []byte(body)}
}
func dataOf(id uint32, sub byte, off uint64, text string) frame {
	return frame{Type: typeData, Sub: sub, ID: id, Body: putData(off, text)}
}
func responseOf(id uint32, outcome byte, body string) frame {
	return frame{Type: typeResponse, Sub: outcome, ID: id, Body: []byte(body)}
}

// text is a body that isn't JSON.
func text(b appender) string { return string(b.appendTo(nil)) }

// modestGuest is a fakeGuest whose commands end by themselves and that can be shut down more than once.
type modestGuest struct{ *fakeGuest }

func (g modestGuest) Start(r ExecRequest, o Outputs) (Process, error) {
	p := &fakeProcess{done: make(chan struct{}), killed: make(chan struct{}), events: make(chan string, 1<<10)}
	go func() {
		for _, a := range r.Argv {
			io.WriteString(o.Stdout, a)
			io.WriteString(o.Stderr, a)
		}
		p.status.Code = len(r.Argv)
		close(p.done)
	}()
	return p, nil
}

func (g modestGuest) Shutdown(context.Context) (func(), error) { return func() {}, nil }

// FuzzServer feeds whatever comes to an agent that has a session.
func FuzzServer(f *testing.F) {
	f.Add(made(goldenFrames...))
	exec := requestOf(1, opExec, text(execBody{ExecRequest: ExecRequest{ID: "a", Argv: []string{"sh", "x"}, Env: []string{"A=b"}, Stdin: true, Timeout: time.Second}}))
	f.Add(made(exec, dataOf(1, streamIn, 0, "x"), requestOf(2, opAttach, `{"id":"a","stdout":-1,"stderr":1}`), frame{Type: typeEnd, ID: 1, Body: putData(1, "")},
		creditFrame(1, 1, streamOut, 3, 9), requestOf(3, opExecs, ""), frame{Type: typeCancel, ID: 2}))
	f.Add(made(exec, requestOf(2, opSignal, `{"id":"a","name":"INT"}`), requestOf(3, opResize, `{"id":"a","rows":3,"cols":4}`), requestOf(4, opKill, `{"id":"a"}`)))
	f.Add(made(requestOf(1, opCopyIn, `{"path":"/x"}`), dataOf(1, streamIn, 0, "tar"), frame{Type: typeEnd, ID: 1, Body: putData(3, "")}, requestOf(2, opCopyOut, `{"path":"/x"}`)))
	f.Add(made(requestOf(1, opFreeze, text(freezeBody{Limit: 5})), requestOf(2, opRepair, text(Repair{Now: time.Unix(1, 0), Seed: []byte("a"), Thaw: true})), requestOf(3, opThaw, ""), requestOf(4, opSync, ""),
		frame{Type: typeHold, ID: 9}, requestOf(5, opExecs, ""), frame{Type: typeRelease, ID: 9}, requestOf(6, opShutdown, "")))
	f.Fuzz(func(t *testing.T, p []byte) {
		s := NewServer(modestGuest{newFakeGuest()}, Info{})
		hello := appendFrame(nil, frame{Type: typeHello, Generation: 1, Body: helloBody{Protocol: Protocol, Nonce: "n"}.appendTo(nil)})
		conn := struct {
			io.Reader
			io.Writer
			io.Closer
		}{io.MultiReader(bytes.NewReader(hello), bytes.NewReader(framesFrom(p, 1))), io.Discard, io.NopCloser(nil)}
		if err := s.Serve(conn); err != nil {
			t.Fatal(err)
		}
	})
}

// hostileGuest is a connection to a guest that acknowledges the session, waits until it is let loose, sends what it has
// and hangs up.
type hostileGuest struct {
	net.Conn // nil: nothing else is called
	wire     []byte
	loose    chan struct{}
	closed   chan struct{}
	once     sync.Once

	mu     sync.Mutex // guards the rest
	heard  decoder
	answer chan []byte
}

func (g *hostileGuest) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := copy(g.heard.space(), rest)
		g.heard.filled(n)
		rest = rest[n:]
		for f, ok := g.heard.next(); ok; f, ok = g.heard.next() {
			if h, err := decodeHello(f.Body); f.Type == typeHello && err == nil {
				body := ackBody{Nonce: h.Nonce, Info: Info{Protocol: Protocol}}.appendTo(nil)
				select {
				case g.answer <- appendFrame(nil, frame{Type: typeAck, Generation: f.Generation, Body: body}):
				default:
				}
			}
		}
	}
	return len(p), nil
}

func (g *hostileGuest) Read(p []byte) (int, error) {
	select {
	case a := <-g.answer:
		return copy(p, a), nil // a decoder's space is larger
	case <-g.closed:
		return 0, net.ErrClosed
	case <-g.loose:
	}
	if len(g.wire) == 0 {
		for range 200 { // what was sent is taken in before the end comes
			runtime.Gosched()
		}
		return 0, io.EOF
	}
	n := copy(p, g.wire)
	g.wire = g.wire[n:]
	return n, nil
}

func (g *hostileGuest) Close() error { g.once.Do(func() { close(g.closed) }); return nil }

// FuzzClient lets a guest answer whatever it likes to one call of each kind: each ends, nothing panics, and no stream
// brings more than came.
func FuzzClient(f *testing.F) {
	exit := text(execReply{Exit: ExitStatus{Code: 3}, Stdout: span{0, 2}})
	f.Add(made(dataOf(1, streamOut, 0, "hi"), responseOf(1, outcomeDone, exit), dataOf(2, streamOut, 7, "hi"), responseOf(2, outcomeDone, text(execReply{Stdout: span{7, 9}}))))
	f.Add(made(dataOf(2, streamErr, maxPosition-1, "xyz"), responseOf(2, outcomeDone, text(execReply{Stderr: span{maxPosition - 1, maxPosition + 2}}))))
	f.Add(made(dataOf(3, streamOut, 0, "tar"), responseOf(3, outcomeDone, `{"bytes":3}`), creditFrame(1, 4, streamIn, 0, maxPosition), responseOf(4, outcomeDone, ""),
		responseOf(5, outcomeDone, `[{"id":"a","argv":["x"],"running":true}]`), frame{Type: typeHeld, ID: 6}))
	f.Add(made(responseOf(1, outcomeFailed, `{"code":"no_command","message":"none"}`), responseOf(2, outcomeFailed, "?"), responseOf(3, 9, "null")))
	f.Fuzz(func(t *testing.T, p []byte) {
		g := &hostileGuest{wire: framesFrom(p, 1), loose: make(chan struct{}), closed: make(chan struct{}), answer: make(chan []byte, 1)}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, _, err := Connect(ctx, g, 1)
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		streams := make([]bytes.Buffer, 5)
		for i, call := range []func(){ // in this order they get the ids from 1 on
			func() {
				c.Exec(ctx, ExecRequest{ID: "a", Argv: []string{"x"}, Stdin: true}, Streams{Stdin: strings.NewReader("input"), Stdout: &streams[0], Stderr: &streams[1]})
			},
			func() { c.AttachExec(ctx, "a", Streams{Stdout: &streams[2], Stderr: &streams[3]}) },
			func() { c.CopyOut(ctx, "/x", &streams[4]) },
			func() { c.CopyIn(ctx, "/x", strings.NewReader("tar")) },
			func() { c.Execs(ctx) },
			func() {
				if release, err := c.Quiesce(ctx); err == nil {
					release()
				}
			},
		} {
			calls.Go(call)
			for begun := false; !begun; runtime.Gosched() {
				c.mu.Lock()
				begun = c.lastID > uint32(i)
				c.mu.Unlock()
			}
		}
		close(g.loose)
		calls.Wait()
		c.Close()
		if ctx.Err() != nil {
			t.Fatal("a call hung")
		}
		if err := c.failure(); !errors.Is(err, ErrClosed) {
			t.Fatalf("the session ended with %v", err)
		}
		for i := range streams {
			if n := streams[i].Len(); n > len(p) {
				t.Fatalf("%d bytes came out of %d", n, len(p))
			}
		}
	})
}
