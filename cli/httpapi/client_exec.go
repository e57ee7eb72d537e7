package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// Exec runs a command over an upgraded connection. The command's ID and Thaw are the host's to choose and aren't sent.
// The goroutine that reads s.Stdin may outlive the call by one Read, for a Read can't be interrupted.
func (c *Client) Exec(ctx context.Context, r host.ExecRequest, s guest.Streams) (host.ExecResult, error) {
	path, err := vmURL(r.ID, "exec")
	if err != nil {
		return host.ExecResult{}, err
	}
	b := bodyOf(r)
	if !b.AttachStdin {
		s.Stdin = nil
	}
	return c.stream(ctx, path, b, b.AttachStdin, s)
}

// AttachExec goes on with an exec's output; what is written to s.Stdin goes to it as in Exec.
func (c *Client) AttachExec(ctx context.Context, id, exec string, s guest.Streams) (host.ExecResult, error) {
	parts := []string{"attach"}
	if exec != "" {
		parts = []string{"execs", exec, "attach"}
	}
	path, err := vmURL(id, parts...)
	if err != nil {
		return host.ExecResult{}, err
	}
	return c.stream(ctx, path, attachBody{AttachStdin: s.Stdin != nil}, s.Stdin != nil, s)
}

// stream upgrades and carries the streams until the end frame. Leaving early, for whatever reason, closes the
// connection, by which the server knows.
func (c *Client) stream(ctx context.Context, path string, body any, stdin bool, s guest.Streams) (host.ExecResult, error) {
	p, err := json.Marshal(body)
	if err != nil {
		return host.ExecResult{}, host.Errorf(host.CodeInternal, "report this", "encoding the request: %w", err)
	}
	resp, err := c.send(ctx, "POST", path, bytes.NewReader(p), http.Header{"Connection": {"Upgrade"}, "Upgrade": {Protocol}})
	if err != nil {
		return host.ExecResult{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if err := c.check(ctx, resp); err != nil {
			return host.ExecResult{}, err
		}
		return host.ExecResult{}, host.Errorf(host.CodeUnsupported, "use a client and a daemon of one version", "the daemon at %s doesn't speak %s", c.where, Protocol)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return host.ExecResult{}, host.Errorf(host.CodeInternal, "report this", "an upgraded connection can't be written to")
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	out := &frameWriter{w: conn}
	window := newCredit()
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { sendControl(out, s, ended) })
	defer wg.Wait()
	defer close(ended)
	defer window.end()
	if stdin {
		go sendStdin(out, s.Stdin, window) // see Exec: no one can wait for it
	}
	res, err := receive(conn, s, window)
	if _, own := err.(callerError); own {
		return res, err.(callerError).error
	}
	if e, ok := err.(*host.Error); ok {
		return res, e
	}
	return res, c.broken(ctx, err)
}

// callerError is a failure of one of the caller's own streams.
type callerError struct{ error }

// receive handles the server's frames until the end. Its error is a callerError, the server's *host.Error, or the
// connection's.
func receive(conn io.Reader, s guest.Streams, window *credit) (host.ExecResult, error) {
	r := bufio.NewReaderSize(conn, maxDataBytes+frameHeaderBytes)
	var buf []byte
	for {
		kind, p, err := readFrame(r, &buf)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return host.ExecResult{}, err
		}
		switch kind {
		case frameStdout:
			err = deliver(s.Stdout, p)
		case frameStderr:
			err = deliver(s.Stderr, p)
		case frameTaken:
			var n int
			if n, err = decodeTaken(p); err == nil {
				err = window.give(n)
			}
		case frameExit:
			var e ExecEnd
			err := json.Unmarshal(p, &e)
			return e.result(), err
		case frameError:
			var e execError
			if err := json.Unmarshal(p, &e); err != nil || e.Error == nil || e.Error.Code == "" {
				return host.ExecResult{}, errFrame
			}
			return host.ExecResult{ExecID: e.ExecID}, e.Error
		default:
			err = errFrame
		}
		if err != nil {
			return host.ExecResult{}, err
		}
	}
}

func deliver(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	if _, err := w.Write(p); err != nil {
		return callerError{err}
	}
	return nil
}

// sendControl sends sizes and signals until the exec has ended.
func sendControl(out *frameWriter, s guest.Streams, ended <-chan struct{}) {
	for {
		select {
		case size, ok := <-s.Resize:
			if !ok {
				s.Resize = nil // a closed channel would be ready for ever
				continue
			}
			out.write(frameResize, encodeSize(size))
		case name, ok := <-s.Signals:
			if !ok {
				s.Signals = nil
				continue
			}
			out.write(frameSignal, []byte(name))
		case <-ended:
			return
		}
	}
}

// sendStdin sends what r gives, within the window, and then its end; a failing r ends stdin too.
func sendStdin(out *frameWriter, r io.Reader, window *credit) {
	buf := make([]byte, maxDataBytes)
	for r != nil {
		n, err := r.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			k := window.take(len(p))
			if k == 0 || out.write(frameStdin, p[:k]) != nil {
				return // the exec has ended
			}
			p = p[k:]
		}
		if err != nil {
			break
		}
	}
	out.write(frameStdin, nil)
}
