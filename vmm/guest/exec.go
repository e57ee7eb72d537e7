package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Streams are the caller's ends of a command. Nil writers discard; a nil Stdin is empty.
//
// A Read of Stdin that is under way when the command has ended is left behind; its bytes go nowhere.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan WindowSize // with TTY
	Signals        <-chan string     // "INT", "TERM", …: sent to the command's process group
}

// Offsets say how much of an exec's output somebody already has.
type Offsets struct{ Stdout, Stderr uint64 }

const (
	killLimit  = 10 * time.Second // for the kill that follows a cancellation
	graceLimit = time.Second      // for a caller's writer or reader that doesn't return
)

// Exec starts a command, or attaches to it when the id is running or has ended not long ago, and copies until its own
// process has ended and its output has arrived. A cancelled ctx kills the command's cgroup unless KeepOnCancel.
//
// An *AgentError means that the command never ran, or, with ErrOutputLost, that somebody else has had the beginning of its
// output. ErrClosed means that the command goes on in the guest, or has been rewound with it.
func (c *Client) Exec(ctx context.Context, r ExecRequest, s Streams) (ExitStatus, error) {
	if err := checkText(r); err != nil {
		return ExitStatus{}, fmt.Errorf("exec %s: %w", r.ID, err)
	}
	a := attendance{id: r.ID, op: opExec, body: execBody{ExecRequest: r, NoInput: s.Stdin == nil}, kill: !r.KeepOnCancel}
	if !r.Stdin {
		s.Stdin = nil
	}
	return c.attend(ctx, a, s)
}

// AttachExec goes on with the output of a running or recently ended exec from what the agent still has. A nil Stdin leaves
// the command's input as it is; a cancelled ctx leaves the command running.
func (c *Client) AttachExec(ctx context.Context, id string, s Streams) (ExitStatus, error) {
	a := attendance{id: id, op: opAttach, body: attachBody{ID: id, Stdout: -1, Stderr: -1}, fromAnywhere: true}
	return c.attend(ctx, a, s)
}

// AttachExecAt goes on with the output from exactly what the caller already has, or fails with ErrOutputLost.
func (c *Client) AttachExecAt(ctx context.Context, id string, have Offsets, s Streams) (ExitStatus, error) {
	a := attendance{id: id, op: opAttach, body: attachBody{ID: id, Stdout: int64(have.Stdout), Stderr: int64(have.Stderr)}, fromAnywhere: true}
	return c.attend(ctx, a, s)
}

// attendance is one caller waiting for an exec.
type attendance struct {
	id           string
	op           byte
	body         any
	kill         bool // when the caller gives up
	fromAnywhere bool
}

func (c *Client) attend(ctx context.Context, a attendance, s Streams) (ExitStatus, error) {
	k := &call{}
	if s.Stdin != nil {
		k.to = newOutStream(windowBytes)
		k.to.announce = true
	}
	for _, sub := range []byte{streamOut, streamErr} {
		k.from[sub] = newInStream(a.fromAnywhere, func(consumed, limit uint64) {
			c.link.send(creditFrame(c.generation, k.id, sub, consumed, limit))
		})
	}
	if err := c.begin(k, a.op, a.body); err != nil {
		return ExitStatus{}, fmt.Errorf("exec %s: %w", a.id, err)
	}
	if k.to != nil {
		k.to.attach(c.link, c.generation, k.id, streamIn, 0)
		go pump(k.to, s.Stdin)
		defer k.to.end()
	}
	copied := make(chan error, 2)
	go func() { copied <- k.from[streamOut].copyTo(s.Stdout) }()
	go func() { copied <- k.from[streamErr].copyTo(s.Stderr) }()
	w := wait{client: c, call: k, id: a.id, copied: copied, copying: 2}
	status, err := w.run(ctx, s)
	if err == nil {
		return status, nil
	}
	k.from[streamOut].fail(err)
	k.from[streamErr].fail(err)
	w.drain()
	var theirs *AgentError
	switch {
	case errors.Is(err, ErrClosed):
		return ExitStatus{}, fmt.Errorf("exec %s: the command goes on in the guest, or was rewound with it: %w", a.id, err)
	case errors.As(err, &theirs):
		return ExitStatus{}, fmt.Errorf("exec %s: %w", a.id, err)
	}
	c.cancel(k)
	if a.kill {
		killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
		defer cancel()
		if kerr := c.Kill(killing, a.id); kerr != nil && !errors.Is(kerr, ErrNoExec) {
			err = fmt.Errorf("%w (and then: %w)", err, kerr)
		}
	}
	return ExitStatus{}, fmt.Errorf("exec %s: %w", a.id, err)
}

// wait is what attend waits for.
type wait struct {
	client  *Client
	call    *call
	id      string
	copied  chan error
	copying int // copies that haven't reported
}

// run forwards signals and sizes until the response has come and the output has been handed over.
func (w *wait) run(ctx context.Context, s Streams) (ExitStatus, error) {
	k, done, closed := w.call, w.call.done, w.client.closed
	var reply execReply
	for done != nil || w.copying > 0 {
		select {
		case <-done:
			done = nil
			if k.err != nil {
				return ExitStatus{}, k.err
			}
			var err error
			if reply, err = decodeExecReply(k.reply); err != nil {
				return ExitStatus{}, fmt.Errorf("the agent's answer: %w", err)
			}
			for sub, part := range map[byte]span{streamOut: reply.Stdout, streamErr: reply.Stderr} {
				if err := k.from[sub].startAt(part.From); err != nil {
					return ExitStatus{}, err
				}
				if err := k.from[sub].finish(part.To); err != nil {
					return ExitStatus{}, err
				}
			}
		case err := <-w.copied:
			w.copying--
			if err != nil {
				return ExitStatus{}, err
			}
		case size, ok := <-s.Resize:
			if !ok {
				s.Resize = nil
				continue
			}
			w.client.post(opResize, resizeBody{ID: w.id, WindowSize: size})
		case name, ok := <-s.Signals:
			if !ok {
				s.Signals = nil
				continue
			}
			w.client.post(opSignal, signalBody{ID: w.id, Name: name})
		case <-ctx.Done():
			return ExitStatus{}, context.Cause(ctx)
		case <-closed:
			// All may have arrived before: the response first.
			select {
			case <-k.done:
				if k.err == nil {
					closed = nil
					continue
				}
			default:
			}
			return ExitStatus{}, w.client.failure()
		}
	}
	k.from[streamOut].settle() // so the guest needn't keep it
	k.from[streamErr].settle()
	return reply.Exit, nil
}

// drain waits for the copies, but not for a caller's writer that hangs.
func (w *wait) drain() {
	timer := time.NewTimer(graceLimit)
	defer timer.Stop()
	for ; w.copying > 0; w.copying-- {
		select {
		case <-w.copied:
		case <-timer.C:
			return
		}
	}
}

// pump copies r into a stream until either ends. Only the end of r can be told to the guest, not its errors.
func pump(to *outStream, r io.Reader) {
	buf := make([]byte, maxDataBytes)
	for {
		n, err := r.Read(buf)
		to.Write(buf[:n])
		if err != nil || to.hasEnded() {
			to.end()
			return
		}
	}
}

// checkText refuses what a body can't hold: the marker, which isn't valid UTF-8.
func checkText(r ExecRequest) error {
	for _, list := range [][]string{r.Argv, r.Env, {r.ID, r.Cwd, r.User}} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return &AgentError{Code: CodeInvalid, Message: fmt.Sprintf("%q is not valid UTF-8", s)}
			}
		}
	}
	return nil
}
