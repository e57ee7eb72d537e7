package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"flash/vmm"
)

// monitor is a client of one QEMU's QMP. Safe for concurrent use: QEMU answers commands in order, each reply finds its
// caller by its id, and a reply that comes after its deadline is dropped.
type monitor struct {
	conn     *net.UnixConn
	deadline time.Duration // of one call
	state    func() string // what the process is doing, for the sentence about a missing answer
	onEvent  func(event)   // called by the reader: must neither block nor call the monitor

	writing sync.Mutex // held over one write; before mu

	mu      sync.Mutex // guards the rest; never held across I/O
	lastID  uint64
	waiting map[uint64]chan<- message
	watches map[*watch]struct{}
	err     error // why no more will come

	greeted chan struct{} // closed at the greeting
	version string        // of this very QEMU; set before greeted is closed
	closed  chan struct{} // closed when the reader has ended
}

// newMonitor takes over conn and begins to read. The caller must handshake before anything else.
func newMonitor(conn *net.UnixConn, deadline time.Duration, state func() string, onEvent func(event)) *monitor {
	q := &monitor{
		conn: conn, deadline: deadline, state: state, onEvent: onEvent,
		waiting: map[uint64]chan<- message{}, watches: map[*watch]struct{}{},
		greeted: make(chan struct{}), closed: make(chan struct{}),
	}
	go q.read()
	return q
}

// handshake waits for the greeting, which a QEMU gives once its devices are made, and enters command mode.
func (q *monitor) handshake(ctx context.Context) error {
	select {
	case <-q.greeted:
	case <-q.closed:
		return q.failure()
	case <-ctx.Done():
		return fmt.Errorf("no greeting from the monitor (%s): %w", q.state(), ctx.Err())
	}
	return q.call(ctx, "qmp_capabilities", nil, nil)
}

// call runs one command and decodes what it returns into out, unless that is nil.
func (q *monitor) call(ctx context.Context, name string, arguments, out any) error {
	return q.callWith(ctx, name, arguments, out, nil)
}

// callWith also sends rights, an SCM_RIGHTS control message, with the command.
func (q *monitor) callWith(ctx context.Context, name string, arguments, out any, rights []byte) error {
	ctx, cancel := context.WithTimeout(ctx, q.deadline)
	defer cancel()
	began := time.Now()
	reply := make(chan message, 1)

	q.mu.Lock()
	if q.err != nil {
		defer q.mu.Unlock()
		return fmt.Errorf("%s: %w", name, q.err)
	}
	q.lastID++
	id := q.lastID
	q.waiting[id] = reply
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.waiting, id)
		q.mu.Unlock()
	}()

	line, err := json.Marshal(command{Execute: name, Arguments: arguments, ID: id})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := q.write(ctx, append(line, '\n'), rights); err != nil {
		return fmt.Errorf("%s: %w", name, q.explain(err, began))
	}
	select {
	case m := <-reply:
		if m.Error != nil {
			return fmt.Errorf("%s: %w", name, m.Error)
		}
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(m.Return, out); err != nil {
			return fmt.Errorf("%s: the reply %.80q: %w", name, m.Return, err)
		}
		return nil
	case <-q.closed:
		return fmt.Errorf("%s: %w", name, q.failure())
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, q.explain(ctx.Err(), began))
	}
}

// write sends one line whole. A QEMU that doesn't read fills the socket, so this has the call's deadline too.
func (q *monitor) write(ctx context.Context, line, rights []byte) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err // rather than begin a line that can't be finished
	}
	until, _ := ctx.Deadline()
	if err := q.conn.SetWriteDeadline(until); err != nil {
		return err
	}
	n, _, err := q.conn.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = q.conn.Write(line[n:])
	}
	if err != nil {
		// Half a line would make nonsense of every later one.
		q.fail(fmt.Errorf("%w: writing to its monitor: %v", vmm.ErrGone, err))
		return err
	}
	return nil
}

// explain turns an end of patience into a sentence with evidence.
func (q *monitor) explain(err error, began time.Time) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case <-q.closed:
		return q.failure()
	default:
	}
	return fmt.Errorf("no answer from QEMU in %v (%s): %w", time.Since(began).Round(time.Millisecond), q.state(), err)
}

// read hands out what comes until the connection ends.
func (q *monitor) read() {
	defer close(q.closed)
	lines := bufio.NewScanner(q.conn)
	lines.Buffer(make([]byte, 64<<10), maxMessageBytes)
	greeted := false
	for lines.Scan() {
		m, err := parseMessage(lines.Bytes())
		if err != nil {
			q.fail(fmt.Errorf("%w: its monitor is unreadable: %v", vmm.ErrGone, err))
			return
		}
		switch {
		case m.Greeting != nil:
			if !greeted {
				greeted, q.version = true, greetedVersion(m.Greeting)
				close(q.greeted)
			}
		case m.Event != "":
			q.deliver(event{m.Event, m.Data})
		default:
			q.answer(m)
		}
	}
	q.fail(fmt.Errorf("%w: its monitor closed%s", vmm.ErrGone, because(lines.Err())))
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// answer gives a reply to its caller. An error without an id is about a line QEMU couldn't read: it concerns whoever waits.
func (q *monitor) answer(m message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, reply := range q.waiting {
		if m.ID == nil || *m.ID == id {
			delete(q.waiting, id)
			reply <- m // buffered, and the only send
		}
	}
}

func (q *monitor) deliver(e event) {
	q.mu.Lock()
	for w := range q.watches {
		w.take(e)
	}
	q.mu.Unlock()
	if q.onEvent != nil {
		q.onEvent(e)
	}
}

// fail ends the connection, with the first reason given.
func (q *monitor) fail(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
	q.conn.Close()
}

func (q *monitor) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// close ends the connection and waits for the reader.
func (q *monitor) close() {
	q.fail(fmt.Errorf("%w: its monitor was closed", vmm.ErrGone))
	<-q.closed
}
