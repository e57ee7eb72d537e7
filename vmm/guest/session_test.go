package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawHost is a host's end whose frames the test writes itself.
type rawHost struct {
	t    *testing.T
	conn net.Conn
	dec  decoder
}

func dialRaw(t *testing.T, s *Server) *rawHost {
	t.Helper()
	host, guest := net.Pipe()
	served := make(chan struct{})
	go func() { s.Serve(guest); close(served) }()
	t.Cleanup(func() { host.Close(); <-served })
	host.SetDeadline(time.Now().Add(20 * time.Second))
	return &rawHost{t: t, conn: host}
}

func (h *rawHost) write(p []byte) {
	h.t.Helper()
	if _, err := h.conn.Write(p); err != nil {
		h.t.Fatal(err)
	}
}

func (h *rawHost) send(f frame) { h.t.Helper(); h.write(appendFrame(nil, f)) }

func (h *rawHost) hello(generation uint64, protocol int, nonce string) {
	h.t.Helper()
	h.send(frame{Type: typeHello, Generation: generation, Body: helloBody{Protocol: protocol, Nonce: nonce}.appendTo(nil)})
}

func (h *rawHost) next() frame {
	h.t.Helper()
	for {
		if f, ok := h.dec.next(); ok {
			return f
		}
		n, err := h.conn.Read(h.dec.space())
		if err != nil {
			h.t.Fatal(err)
		}
		h.dec.filled(n)
	}
}

func TestFramesOfAnotherGenerationAreDropped(t *testing.T) {
	h := dialRaw(t, NewServer(newFakeGuest(), Info{}))
	h.send(frame{Type: typeRequest, Sub: opExecs, Generation: 5, ID: 1}) // before any session
	h.hello(5, Protocol, "a")
	if f := h.next(); f.Type != typeAck || f.Generation != 5 {
		t.Fatalf("%+v", f)
	}
	h.send(frame{Type: typeRequest, Sub: opExecs, Generation: 4, ID: 2})
	h.send(frame{Type: typeRequest, Sub: opExecs, Generation: 6, ID: 3})
	h.send(frame{Type: typeRequest, Sub: opExecs, Generation: 5, ID: 4})
	if f := h.next(); f.Type != typeResponse || f.ID != 4 {
		t.Fatalf("answered %+v", f)
	}
	h.hello(5, Protocol, "a") // repeated: answered again, nothing else
	if f := h.next(); f.Type != typeAck {
		t.Fatalf("%+v", f)
	}
	h.send(frame{Type: typeRequest, Sub: opExecs, Generation: 5, ID: 5})
	if f := h.next(); f.ID != 5 {
		t.Fatalf("%+v", f)
	}
	for _, old := range []uint64{5, 4} {
		h.hello(old, Protocol, "b")
		f := h.next()
		if ack, err := decodeAck(f.Body); f.Type != typeRefuse || err != nil || ack.Code != CodeStale || ack.Nonce != "b" {
			t.Fatalf("generation %d: %+v", old, f)
		}
	}
}

func TestAnotherProtocolIsRefusedByBothSides(t *testing.T) {
	h := dialRaw(t, NewServer(newFakeGuest(), Info{}))
	h.hello(1, 99, "a")
	f := h.next()
	if ack, err := decodeAck(f.Body); f.Type != typeRefuse || err != nil || ack.Code != CodeProtocol || ack.Protocol != Protocol {
		t.Fatalf("%+v", f)
	}
	for _, code := range []string{CodeProtocol, ""} { // one that refuses, and one that doesn't know better
		near, far := net.Pipe()
		go answerHello(far, func(hello helloBody) ackBody {
			return ackBody{Nonce: hello.Nonce, Info: Info{Protocol: 99}, Code: code}
		})
		_, _, err := Connect(t.Context(), near, 1)
		var mismatch ErrProtocol
		if !errors.As(err, &mismatch) || mismatch != (ErrProtocol{Theirs: 99, Ours: Protocol}) {
			t.Fatalf("%v", err)
		}
	}
}

// answerHello is an agent that only answers HELLOs.
func answerHello(conn net.Conn, answer func(helloBody) ackBody) {
	var d decoder
	for {
		n, err := conn.Read(d.space())
		if err != nil {
			return
		}
		d.filled(n)
		for f, ok := d.next(); ok; f, ok = d.next() {
			hello, err := decodeHello(f.Body)
			if f.Type != typeHello || err != nil {
				continue
			}
			ack := answer(hello)
			kind := typeAck
			if ack.Code != "" {
				kind = typeRefuse
			}
			conn.Write(appendFrame(nil, frame{Type: kind, Generation: f.Generation, Body: ack.appendTo(nil)}))
		}
	}
}

func TestConnectComesBackInTimeFromADeadAgent(t *testing.T) {
	for name, agent := range map[string]func(net.Conn){
		"reads and is silent": func(c net.Conn) { io.Copy(io.Discard, c) },
		"doesn't even read":   func(c net.Conn) {},
		"talks nonsense": func(c net.Conn) {
			go io.Copy(io.Discard, c)
			for {
				if _, err := c.Write(append([]byte("nonsense"), marker[:]...)); err != nil {
					return
				}
			}
		},
		"answers somebody else": func(c net.Conn) {
			answerHello(c, func(helloBody) ackBody { return ackBody{Nonce: "another", Info: Info{Protocol: Protocol}} })
		},
	} {
		near, far := net.Pipe()
		go agent(far)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, _, err := Connect(ctx, near, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		far.Close()
	}
	near, far := net.Pipe()
	far.Close()
	if _, _, err := Connect(t.Context(), near, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("the other end is closed: %v", err)
	}
}

// dirtyConn is a channel in which others have left bytes, in both directions.
type dirtyConn struct {
	net.Conn
	reader io.Reader
}

func (d dirtyConn) Read(p []byte) (int, error) { return d.reader.Read(p) }

func TestSessionBeginsInsideWhatAFormerOneLeft(t *testing.T) {
	half := appendFrame(nil, frame{Type: typeData, Sub: streamOut, Generation: 1, ID: 1, Body: putData(0, strings.Repeat("y", 20000))})[:9000]
	whole := appendFrame(nil, frame{Type: typeResponse, Generation: 1, ID: 1, Body: []byte(`[]`)})
	left := append(append([]byte("noise"), whole...), half...)
	near, far := net.Pipe()
	s := NewServer(newFakeGuest(), Info{})
	go s.Serve(dirtyConn{far, io.MultiReader(bytes.NewReader(left), far)})
	defer far.Close()
	c, _, err := Connect(t.Context(), dirtyConn{near, io.MultiReader(bytes.NewReader(left), near)}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	if _, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"echo", "one", "two", "0"}}, Streams{Stdout: &out}); err != nil || out.String() != "one" {
		t.Fatalf("%q, %v", &out, err)
	}
}

// stopAfter is a writer that blocks for good after some bytes.
type stopAfter struct {
	bytes.Buffer
	limit   int
	reached chan struct{}
	let     chan struct{}
}

func (s *stopAfter) Write(p []byte) (int, error) {
	if s.Len()+len(p) > s.limit {
		close(s.reached)
		<-s.let
		return 0, errors.New("nobody wants more")
	}
	return s.Buffer.Write(p)
}

func TestOutputGoesOnExactlyAfterTheSessionIsLost(t *testing.T) {
	s := NewServer(newFakeGuest(), Info{})
	var want bytes.Buffer
	io.Copy(&want, pattern(5<<20))
	first := connect(t, s, 1)
	got := &stopAfter{limit: 1 << 20, reached: make(chan struct{}), let: make(chan struct{})}
	lost := make(chan error, 1)
	go func() {
		_, err := first.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"big", "5242880"}, KeepOnCancel: true}, Streams{Stdout: got})
		lost <- err
	}()
	<-got.reached
	first.conn.Close()
	close(got.let)
	if err := <-lost; !errors.Is(err, ErrClosed) && !strings.Contains(err.Error(), "nobody wants more") {
		t.Fatalf("the first caller got %v", err)
	}
	have := uint64(got.Len())
	first.Close()

	second := connectAgain(t, s, 2)
	// The beginning has gone: asking for all of it must not give less.
	if _, err := second.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"big", "5242880"}}, Streams{}); !errors.Is(err, ErrOutputLost) {
		t.Fatalf("asking from the start gave %v", err)
	}
	rest := bytes.Clone(got.Bytes())
	more := bytes.NewBuffer(rest)
	status, err := second.AttachExecAt(t.Context(), "a", Offsets{Stdout: have}, Streams{Stdout: more})
	if err != nil || status.Code != 0 {
		t.Fatalf("%+v, %v", status, err)
	}
	if !bytes.Equal(more.Bytes(), want.Bytes()) {
		t.Fatalf("%d bytes, want %d, or they differ", more.Len(), want.Len())
	}
}

// connectAgain waits until the server is free of its last channel.
func connectAgain(t *testing.T, s *Server, generation uint64) *Client {
	t.Helper()
	for {
		c, _, err := dial(t, s, generation)
		if err == nil {
			return c
		}
		if !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
}

func TestLostSessionGivesADefiniteAnswerAndTheExecGoesOn(t *testing.T) {
	g := newFakeGuest()
	s := NewServer(g, Info{})
	c := connect(t, s, 1)
	lost := make(chan error, 1)
	ready := &stopAfter{limit: 0, reached: make(chan struct{}), let: make(chan struct{})}
	close(ready.let)
	go func() {
		_, err := c.AttachExec(t.Context(), "a", Streams{})
		if !errors.Is(err, ErrNoExec) {
			lost <- err
			return
		}
		_, err = c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"sleep"}}, Streams{Stdout: writerFunc(func(p []byte) (int, error) { close(ready.reached); return len(p), nil })})
		lost <- err
	}()
	<-ready.reached
	c.Close()
	if err := <-lost; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "goes on in the guest") {
		t.Fatalf("%v", err)
	}
	c = connectAgain(t, s, 2)
	infos, err := c.Execs(t.Context())
	if err != nil || len(infos) != 1 || !infos[0].Running || infos[0].ID != "a" {
		t.Fatalf("%+v, %v", infos, err)
	}
	ended := make(chan ExitStatus, 1)
	go func() {
		st, _ := c.AttachExec(t.Context(), "a", Streams{})
		ended <- st
	}()
	if err := c.Kill(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if st := <-ended; st.Code != 137 {
		t.Fatalf("%+v", st)
	}
	if g.starts["a"] != 1 {
		t.Fatalf("started %d times", g.starts["a"])
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestLaterCallerTakesOver(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	first := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		_, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"sleep"}}, Streams{Stdout: writerFunc(func(p []byte) (int, error) { close(began); return len(p), nil })})
		first <- err
	}()
	<-began
	second := make(chan ExitStatus, 1)
	go func() {
		st, _ := c.AttachExec(t.Context(), "a", Streams{})
		second <- st
	}()
	var e *AgentError
	if err := <-first; !errors.As(err, &e) || e.Code != CodeTakenOver {
		t.Fatalf("%v", err)
	}
	if err := c.Kill(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if st := <-second; st.Code != 137 {
		t.Fatalf("%+v", st)
	}
}

// watchedConn counts what is under way.
type watchedConn struct {
	net.Conn
	reading, writing atomic.Int32
	reads, writes    atomic.Int64
}

func (w *watchedConn) Read(p []byte) (int, error) {
	w.reading.Add(1)
	defer w.reading.Add(-1)
	w.reads.Add(1)
	return w.Conn.Read(p)
}

func (w *watchedConn) Write(p []byte) (int, error) {
	w.writing.Add(1)
	defer w.writing.Add(-1)
	w.writes.Add(1)
	return w.Conn.Write(p)
}

func TestQuiescedChannelIsNeitherReadNorWritten(t *testing.T) {
	s := NewServer(newFakeGuest(), Info{})
	near, far := net.Pipe()
	host, guest := &watchedConn{Conn: near}, &watchedConn{Conn: far}
	served := make(chan struct{})
	go func() { s.Serve(guest); close(served) }()
	c, _, err := Connect(t.Context(), host, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Close(); <-served }()

	want, got := sha256.New(), sha256.New()
	io.Copy(want, pattern(6<<20))
	done := make(chan error, 1)
	go func() { // bytes in both directions
		_, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"cat"}, Stdin: true}, Streams{Stdin: pattern(6 << 20), Stdout: got})
		done <- err
	}()
	rounds := 0
	for running := true; running; rounds++ {
		release, err := c.Quiesce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hostReads, hostWrites, guestWrites := host.reads.Load(), host.writes.Load(), guest.writes.Load()
		if r, w := host.reading.Load(), host.writing.Load(); r != 0 || w != 0 {
			t.Fatalf("round %d: the host is in %d reads and %d writes", rounds, r, w)
		}
		asked := make(chan error, 1)
		go func() { asked <- c.Thaw(t.Context()) }() // waits for the release
		select {
		case err := <-asked:
			t.Fatalf("round %d: a request was answered at rest: %v", rounds, err)
		case <-time.After(time.Millisecond): // time in which something forbidden might happen; nothing waits for it
		}
		if r, w, g := host.reads.Load(), host.writes.Load(), guest.writes.Load(); r != hostReads || w != hostWrites || g != guestWrites {
			t.Fatalf("round %d: at rest the host read %d times and wrote %d times, the guest wrote %d times", rounds, r-hostReads, w-hostWrites, g-guestWrites)
		}
		release()
		release()
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatal("the stream was harmed")
	}
	if rounds < 3 {
		t.Fatalf("only %d rounds: the stream was too short to prove anything", rounds)
	}
}

func TestQuiesceThatGivesUpLeavesTheChannelUsable(t *testing.T) {
	s := NewServer(newFakeGuest(), Info{})
	near, far := net.Pipe()
	gate := &gatedConn{Conn: far, let: make(chan struct{})}
	close(gate.let)
	served := make(chan struct{})
	go func() { s.Serve(gate); close(served) }()
	c, _, err := Connect(t.Context(), near, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Close(); <-served }()
	for range 20 {
		gate.shut()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, err := c.Quiesce(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		cancel()
		gate.open()
		if err := c.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		release, err := c.Quiesce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
}

// gatedConn holds writes up while shut.
type gatedConn struct {
	net.Conn
	mu  sync.Mutex
	let chan struct{}
}

func (g *gatedConn) shut() { g.mu.Lock(); g.let = make(chan struct{}); g.mu.Unlock() }
func (g *gatedConn) open() { g.mu.Lock(); close(g.let); g.mu.Unlock() }
func (g *gatedConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	let := g.let
	g.mu.Unlock()
	<-let
	return g.Conn.Write(p)
}

func TestCloseUnblocksEverything(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	began := make(chan struct{})
	errs := make(chan error, 4)
	go func() {
		_, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"sleep"}}, Streams{Stdout: writerFunc(func(p []byte) (int, error) { close(began); return len(p), nil })})
		errs <- err
	}()
	<-began
	endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
	go func() { errs <- c.CopyIn(t.Context(), "/x", endless) }()
	release, err := c.Quiesce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { errs <- c.Thaw(t.Context()) }()
	go func() {
		_, err := c.Quiesce(t.Context())
		errs <- err
	}()
	c.Close()
	for range 4 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	release()
	if err := c.Thaw(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	c.Close()
}

func TestAgentThatWritesAtRestEndsTheSession(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		var d decoder
		for {
			n, err := far.Read(d.space())
			if err != nil {
				return
			}
			d.filled(n)
			for f, ok := d.next(); ok; f, ok = d.next() {
				switch f.Type {
				case typeHello:
					hello, _ := decodeHello(f.Body)
					ack := ackBody{Nonce: hello.Nonce, Info: Info{Protocol: Protocol}}
					far.Write(appendFrame(nil, frame{Type: typeAck, Generation: f.Generation, Body: ack.appendTo(nil)}))
				case typeHold:
					p := appendFrame(nil, frame{Type: typeHeld, Generation: f.Generation, ID: f.ID})
					far.Write(append(p, "one more byte"...))
				}
			}
		}
	}()
	c, _, err := Connect(t.Context(), near, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Quiesce(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("%v", err)
	}
}

func TestCancelledExecIsKilledUnlessAskedToKeep(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	for _, keep := range []bool{false, true} {
		id := map[bool]string{false: "killed", true: "kept"}[keep]
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Exec(ctx, ExecRequest{ID: id, Argv: []string{"sleep"}, KeepOnCancel: keep}, Streams{Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		if !keep {
			// What it wrote was consumed by the first caller; how it ended can still be asked for.
			if st, err := c.AttachExec(t.Context(), id, Streams{}); err != nil || st.Code != 137 {
				t.Fatalf("%+v, %v", st, err)
			}
			continue
		}
		infos, err := c.Execs(t.Context())
		if err != nil || len(infos) != 2 || infos[0].Running || !infos[1].Running {
			t.Fatalf("%+v, %v", infos, err)
		}
		c.Kill(t.Context(), id)
	}
}

func TestRequestThatJSONWouldChangeIsRefused(t *testing.T) {
	c := connect(t, NewServer(newFakeGuest(), Info{}), 1)
	_, err := c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{"echo", "\xff"}}, Streams{})
	var e *AgentError
	if !errors.As(err, &e) || e.Code != CodeInvalid {
		t.Fatalf("%v", err)
	}
	_, err = c.Exec(t.Context(), ExecRequest{ID: "a", Argv: []string{strings.Repeat("x", maxBodyBytes)}}, Streams{})
	if !errors.As(err, &e) || e.Code != CodeInvalid {
		t.Fatalf("%v", err)
	}
}

func TestEndedExecsAreRememberedWithTheirUnreadOutput(t *testing.T) {
	s := NewServer(newFakeGuest(), Info{})
	c := connect(t, s, 1)
	for i := range keepEnded + 10 {
		ctx, cancel := context.WithCancel(t.Context())
		id := "e" + string(rune('A'+i/26)) + string(rune('a'+i%26))
		if _, err := c.Exec(ctx, ExecRequest{ID: id, Argv: []string{"echo", "", "", "5"}}, Streams{}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	infos, err := c.Execs(t.Context())
	if err != nil || len(infos) != keepEnded || infos[0].ID != "eAk" || infos[0].Exit == nil || infos[0].Exit.Code != 5 {
		t.Fatalf("%d execs, %+v, %v", len(infos), infos[0], err)
	}
	if st, err := c.AttachExec(t.Context(), "eCv", Streams{}); err != nil || st.Code != 5 {
		t.Fatalf("%+v, %v", st, err)
	}
}

func TestShutdownAnswersBeforeTheMachineGoes(t *testing.T) {
	g := newFakeGuest()
	c := connect(t, NewServer(g, Info{}), 1)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.down:
	case <-time.After(10 * time.Second):
		t.Fatal("the machine never went")
	}
}

func TestRepairTravelsWhole(t *testing.T) {
	g := newFakeGuest()
	c := connect(t, NewServer(g, Info{}), 1)
	c.Freeze(t.Context(), time.Minute)
	if err := c.Repair(t.Context(), Repair{Thaw: true}); err == nil || !g.frozen {
		t.Fatalf("a repair without a seed: %v", err)
	}
	now := time.Now()
	r := Repair{Now: now, Seed: bytes.Repeat([]byte{1}, 64), Generation: "g", Hostname: "h", MAC: "m", Hooks: true, Thaw: true}
	if err := c.Repair(t.Context(), r); err != nil || g.frozen {
		t.Fatal(err)
	}
	got := g.repairs[1]
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	r.Now = past
	if err := c.Repair(t.Context(), r); err != nil || !g.repairs[2].Now.Equal(past) {
		t.Fatalf("a time without a monotonic reading became %v, %v", g.repairs[2].Now, err)
	}
	if got.Now.Before(now) || got.Now.Sub(now) > 10*time.Second || got.Generation != "g" || got.Hostname != "h" || got.MAC != "m" || !got.Hooks || !bytes.Equal(got.Seed, r.Seed) {
		t.Fatalf("%+v", got)
	}
}
