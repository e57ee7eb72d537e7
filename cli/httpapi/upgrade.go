package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// lingerTimeout is how long the server waits, after the last frame, for the client to close: closing first with stdin
// unread would reset the connection, and the client could lose that frame.
const lingerTimeout = 5 * time.Second

const signalQueue = 32 // signals a command hasn't been sent yet; more are dropped

// upgrade runs an exec over frames. Once the connection is hijacked every failure is a frame, and nil is returned.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, attachStdin bool, run runExec) error {
	if !s.adopt() {
		return host.Errorf(host.CodeDaemon, "start it again", "the daemon is ending")
	}
	defer s.upgraded.Done()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return host.Errorf(host.CodeUnsupported, "leave Connection: Upgrade out", "this connection can't be upgraded: %w", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Time{})
	const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := io.WriteString(conn, accepted); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(s.running)
	defer cancel(nil)

	out := &frameWriter{w: conn}
	in := newInput(out)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		err := in.pump(rw.Reader)
		in.stdin.fail(err)
		cancel(err) // the client is gone, or broke the protocol
	}()
	// A write to a client that has gone must not outlive ctx.
	stop := context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now()) })
	st := guest.Streams{Stdout: stream{out, frameStdout}, Stderr: stream{out, frameStderr}, Resize: in.resize, Signals: in.signals}
	if attachStdin {
		st.Stdin = in.stdin
	}
	res, err := run(ctx, st)
	stop()
	conn.SetDeadline(time.Now().Add(lingerTimeout))
	s.sendEnd(out, res, err)
	if cw, ok := conn.(interface{ CloseWrite() error }); ok {
		cw.CloseWrite()
	}
	in.stdin.fail(net.ErrClosed)
	<-reading // the client closes once it has the end, or the deadline passes
	return nil
}

func (s *Server) sendEnd(out *frameWriter, res host.ExecResult, err error) {
	kind, v := byte(frameExit), any(EndOf(res))
	if err != nil {
		e := ErrorOf(err)
		s.log.Debug("exec failed", "code", e.Code, "err", err)
		kind, v = frameError, execError{ErrorBody{e}, res.ExecID}
	}
	p, err := json.Marshal(v)
	if err != nil {
		p, _ = json.Marshal(execError{ErrorBody{ErrorOf(err)}, res.ExecID})
		kind = frameError
	}
	out.write(kind, p) // a client that has gone doesn't see the end
}

// input is what a client sends while its exec runs.
type input struct {
	stdin   *stdinBuffer
	resize  chan guest.WindowSize
	signals chan string
}

func newInput(ack *frameWriter) *input {
	return &input{
		stdin:   newStdinBuffer(ack),
		resize:  make(chan guest.WindowSize, 1),
		signals: make(chan string, signalQueue),
	}
}

// pump hands frames on until the connection ends, and never waits for the command. It returns why it ended.
func (in *input) pump(r *bufio.Reader) error {
	var buf []byte
	for {
		kind, p, err := readFrame(r, &buf)
		if err == io.EOF {
			return io.ErrUnexpectedEOF // a command must not take it for the end of its stdin
		}
		if err != nil {
			return err
		}
		switch kind {
		case frameStdin:
			err = in.stdin.put(p)
		case frameResize:
			err = in.putSize(p)
		case frameSignal:
			err = in.putSignal(p)
		default:
			err = errFrame
		}
		if err != nil {
			return err
		}
	}
}

// putSize keeps the newest size only. Preconditions: one goroutine puts.
func (in *input) putSize(p []byte) error {
	size, err := decodeSize(p)
	if err != nil {
		return err
	}
	select {
	case <-in.resize:
	default:
	}
	in.resize <- size // room: only this goroutine adds
	return nil
}

func (in *input) putSignal(p []byte) error {
	name, err := decodeSignal(p)
	if err != nil {
		return err
	}
	select {
	case in.signals <- name:
	default:
	}
	return nil
}
