package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"flash/vmm"
)

// peer plays QEMU.
type peer struct {
	t     *testing.T
	conn  *net.UnixConn
	lines *bufio.Scanner
}

// fakeMonitor connects a monitor to a peer.
func fakeMonitor(t *testing.T, deadline time.Duration, onEvent func(event)) (*monitor, *peer) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Skip(err)
	}
	defer listener.Close()
	ours, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	q := newMonitor(ours, deadline, func() string { return "process 7 is stopped by a signal" }, onEvent)
	t.Cleanup(func() { theirs.Close(); q.close() })
	return q, &peer{t, theirs, bufio.NewScanner(theirs)}
}

func (p *peer) say(format string, args ...any) {
	if _, err := fmt.Fprintf(p.conn, format+"\r\n", args...); err != nil {
		p.t.Error(err)
	}
}

func (p *peer) hear() (name string, id uint64) {
	var c struct {
		Execute string
		ID      uint64
	}
	p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if !p.lines.Scan() || json.Unmarshal(p.lines.Bytes(), &c) != nil {
		p.t.Errorf("no command: %v", p.lines.Err())
	}
	return c.Execute, c.ID
}

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": ["oob"]}}`

func TestMonitorShakesHands(t *testing.T) {
	q, p := fakeMonitor(t, time.Minute, nil)
	go func() {
		p.say(greeting)
		if name, id := p.hear(); name != "qmp_capabilities" {
			t.Error(name)
		} else {
			p.say(`{"return": {}, "id": %d}`, id)
		}
	}()
	if err := q.handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q.version != "7.2.22" {
		t.Errorf("version %q", q.version)
	}
}

func TestRepliesFindTheirCallers(t *testing.T) {
	q, p := fakeMonitor(t, time.Minute, nil)
	const calls = 20
	go func() { // answers in the opposite order, with events in between
		var ids []uint64
		for range calls {
			_, id := p.hear()
			ids = append(ids, id)
		}
		for i := range ids {
			p.say(`{"event": "NOISE", "timestamp": {}}`)
			p.say(`{"return": {"is": %d}, "id": %d}`, ids[calls-1-i], ids[calls-1-i])
		}
	}()
	var wg sync.WaitGroup
	seen := make(chan int, calls)
	for range calls {
		wg.Go(func() {
			var out struct{ Is int }
			if err := q.call(t.Context(), "query", nil, &out); err != nil {
				t.Error(err)
			}
			seen <- out.Is
		})
	}
	wg.Wait()
	close(seen)
	all := map[int]bool{}
	for is := range seen {
		all[is] = true
	}
	if len(all) != calls {
		t.Errorf("%d of %d replies", len(all), calls)
	}
}

func TestSilentQEMUEndsInASentence(t *testing.T) {
	q, p := fakeMonitor(t, 20*time.Millisecond, nil)
	err := q.call(t.Context(), "stop", nil, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "process 7 is stopped by a signal") || !strings.Contains(err.Error(), "stop:") {
		t.Errorf("%v", err)
	}
	// The late reply belongs to nobody, and the next call gets its own.
	_, id := p.hear()
	p.say(`{"return": {"late": true}, "id": %d}`, id)
	q.deadline = time.Minute
	go func() {
		_, id := p.hear()
		p.say(`{"return": {"fresh": true}, "id": %d}`, id)
	}()
	var out struct{ Late, Fresh bool }
	if err := q.call(t.Context(), "cont", nil, &out); err != nil || out.Late || !out.Fresh {
		t.Errorf("%+v %v", out, err)
	}
}

func TestUnreadCommandEndsInASentence(t *testing.T) {
	q, _ := fakeMonitor(t, 500*time.Millisecond, nil)
	big := strings.Repeat("x", 4<<20) // more than the socket holds
	if err := q.call(t.Context(), "fill", big, nil); err == nil || !strings.Contains(err.Error(), "fill:") {
		t.Errorf("%v", err)
	}
	// Half a line was written: the monitor is of no use any more, and says so at once.
	if err := q.call(t.Context(), "next", nil, nil); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestRefusalsAndEndsAreToldApart(t *testing.T) {
	q, p := fakeMonitor(t, time.Minute, nil)
	go func() {
		_, id := p.hear()
		p.say(`{"error": {"class": "GenericError", "desc": "no such thing"}, "id": %d}`, id)
		p.hear()
		p.say(`{"error": {"class": "GenericError", "desc": "Invalid JSON syntax"}}`)
		p.hear()
		p.conn.Close()
	}()
	var refusal *qmpError
	if err := q.call(t.Context(), "a", nil, nil); !errors.As(err, &refusal) || refusal.Desc != "no such thing" {
		t.Errorf("%v", err)
	}
	if err := q.call(t.Context(), "b", nil, nil); !errors.As(err, &refusal) || refusal.Desc != "Invalid JSON syntax" {
		t.Errorf("%v", err)
	}
	if err := q.call(t.Context(), "c", nil, nil); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%v", err)
	}
	if err := q.call(t.Context(), "d", nil, nil); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestNonsenseEndsTheMonitor(t *testing.T) {
	q, p := fakeMonitor(t, time.Minute, nil)
	go func() {
		p.hear()
		p.say(`{"return": {}}`) // answers nothing
	}()
	if err := q.call(t.Context(), "a", nil, nil); !errors.Is(err, vmm.ErrGone) || !strings.Contains(err.Error(), "unreadable") {
		t.Errorf("%v", err)
	}
}

func TestMigrationEventsAreFollowedToTheirEnd(t *testing.T) {
	heard := make(chan string, 10)
	q, p := fakeMonitor(t, time.Minute, func(e event) { heard <- e.name })
	say := func(status string) { p.say(`{"event": "MIGRATION", "data": {"status": %q}}`, status) }
	w := q.watch("MIGRATION")
	go func() {
		p.say(`{"event": "STOP"}`)
		say("setup")
		say("active")
		say("completed")
	}()
	if err := w.migrated(t.Context()); err != nil {
		t.Error(err)
	}
	if first := <-heard; first != "STOP" {
		t.Errorf("the listener heard %s first", first)
	}
	go func() {
		say("failed")
		_, id := p.hear()
		p.say(`{"return": {"status": "failed", "error-desc": "no space"}, "id": %d}`, id)
	}()
	if err := w.migrated(t.Context()); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%v", err)
	}
	p.conn.Close()
	if err := w.migrated(t.Context()); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%v", err)
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, seed := range []string{
		greeting, `{"return": {}, "id": 1}`, `{"return": "text", "id": 18446744073709551615}`, `{"error": {"class": "C", "desc": "d"}, "id": 2}`,
		`{"error": {"class": "C", "desc": "d"}}`, `{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}, "timestamp": {"seconds": 1, "microseconds": 2}}`,
		`{"return": null, "id": 3}`, `{}`, `null`, `[]`, `{"event": "", "id": -1}`, `{"return": 1, "event": "X", "id": 1}`, "", "{",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(line)
		if err != nil {
			if !errors.Is(err, errNotQMP) {
				t.Fatalf("%v", err)
			}
			return
		}
		kinds := 0
		for _, is := range []bool{m.Greeting != nil, m.Event != "", m.Return != nil, m.Error != nil} {
			if is {
				kinds++
			}
		}
		if kinds != 1 || m.Return != nil && m.ID == nil {
			t.Fatalf("%q was taken for %+v", line, m)
		}
		greetedVersion(m.Greeting)
		shutdownReason(event{m.Event, m.Data})
	})
}

// A monitor whose lines are whatever they are, but for the ids, answers every call with a reply or an error, in time.
func FuzzMonitor(f *testing.F) {
	for _, seed := range []string{
		greeting + "\n" + `{"return": {}, "id": 1}` + "\n" + `{"return": {"status": "running"}, "id": 2}` + "\n" + `{"event": "MIGRATION", "data": {"status": "completed"}}`,
		greeting + "\n" + `{"error": {"class": "C", "desc": "d"}}` + "\n" + `{"return": 7, "id": 2}`, "\n\n", `{"event":"STOP"}` + "\r\n" + greeting + greeting,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		q, p := fakeMonitor(t, 10*time.Second, func(event) {})
		w := q.watch("MIGRATION")
		defer w.stop()
		go func() {
			p.conn.Write(said)
			p.conn.CloseWrite()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var answer struct {
			Status string `json:"status"`
		}
		if q.handshake(ctx) == nil {
			q.call(ctx, "query-status", nil, &answer)
		}
		w.migrated(ctx)
		if ctx.Err() != nil {
			t.Fatal("a call outlived its connection")
		}
	})
}

// What slirp lists, connections of the guest's among it, gives forwards of TCP port numbers or none.
func FuzzForwards(f *testing.F) {
	f.Add("Hub -1 (net0):\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n  TCP[HOST_FORWARD]  11       127.0.0.1 39493       10.0.2.15  8080     0     0\n", 8080)
	f.Add("TCP[HOST_FORWARD] 1 2 -3 4 99999 6", 4)
	f.Fuzz(func(t *testing.T, text string, guest int) {
		for _, p := range parseForwards(text) {
			if p.Host < 0 || p.Host > 65535 || p.Guest < 0 || p.Guest > 65535 {
				t.Fatalf("%q gives %+v", text, p)
			}
		}
		if p, err := chosenPort(text, guest, nil); err == nil && p.Guest != guest {
			t.Fatalf("asked for %d, got %+v", guest, p)
		}
	})
}
