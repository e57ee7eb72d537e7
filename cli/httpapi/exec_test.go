package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/vmm/guest"
	"flash/vmm/host"
)

func TestExecArrivesWholeAndItsResultComesBack(t *testing.T) {
	api := &scripted{}
	c := serve(t, api)
	req := host.ExecRequest{RequestID: "r1", ID: "a", Checkpoint: ptr(false), Command: guest.ExecRequest{
		Argv: []string{"sh", "-c", "a && b"}, Env: []string{"A=b"}, Cwd: "/w", User: "1:2", TTY: true, Rows: 40, Cols: 120, Stdin: true, Timeout: 1500 * time.Millisecond,
	}}
	var out, errOut bytes.Buffer
	api.exec = func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		in, err := io.ReadAll(s.Stdin)
		if err != nil {
			return host.ExecResult{}, err
		}
		fmt.Fprintf(s.Stdout, "<%s>", in)
		fmt.Fprint(s.Stderr, "warning")
		return aResult, nil
	}
	res, err := c.Exec(t.Context(), req, guest.Streams{Stdin: strings.NewReader("input"), Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(api.called(), req) {
		t.Errorf("the host got\n %#v, want\n %#v", api.called(), req)
	}
	if !reflect.DeepEqual(res, aResult) {
		t.Errorf("the client got\n %#v, want\n %#v", res, aResult)
	}
	if out.String() != "<input>" || errOut.String() != "warning" {
		t.Errorf("stdout %q, stderr %q", &out, &errOut)
	}
}

func TestAttachNamesItsExec(t *testing.T) {
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		if s.Stdin != nil {
			t.Error("a stdin that nobody gave")
		}
		return aResult, nil
	}}
	c := serve(t, api)
	for _, exec := range []string{"", "e7"} {
		res, err := c.AttachExec(t.Context(), "a", exec, guest.Streams{})
		if err != nil || !reflect.DeepEqual(res, aResult) || !reflect.DeepEqual(api.called(), []any{"a", exec}) {
			t.Errorf("%q: %v %v, the host got %v", exec, res, err, api.called())
		}
	}
}

func TestNoInputIsSentThatTheCommandDoesNotTake(t *testing.T) {
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		if s.Stdin != nil {
			t.Error("the host was given a stdin")
		}
		return host.ExecResult{}, nil
	}}
	if _, err := serve(t, api).Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{Stdin: strings.NewReader("x")}); err != nil {
		t.Error(err)
	}
}

const manyBytes = 100 << 20

// pattern is a stream that tells a lost, doubled or moved piece.
type pattern struct{ n uint32 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := 0; i+4 <= len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = byte(p.n), byte(p.n>>8), byte(p.n>>16), byte(p.n>>24)
		p.n++
	}
	return len(b) &^ 3, nil
}

func TestHundredMegabytesArriveInOrder(t *testing.T) {
	want := sha256.New()
	io.Copy(want, io.LimitReader(&pattern{}, manyBytes))
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		_, err := io.CopyBuffer(writerOnly{s.Stdout}, io.LimitReader(&pattern{}, manyBytes), make([]byte, 200<<10)) // longer than a frame
		return aResult, err
	}}
	c := serve(t, api)
	got := sha256.New()
	if _, err := c.Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{Stdout: got}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("the output differs")
	}
}

func TestHundredMegabytesOfInputArriveInOrder(t *testing.T) {
	want := sha256.New()
	io.Copy(want, io.LimitReader(&pattern{}, manyBytes))
	sum := make(chan []byte, 1)
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		got := sha256.New()
		_, err := io.Copy(got, s.Stdin)
		sum <- got.Sum(nil)
		return aResult, err
	}}
	r := host.ExecRequest{ID: "a", Command: guest.ExecRequest{Stdin: true}}
	if _, err := serve(t, api).Exec(t.Context(), r, guest.Streams{Stdin: io.LimitReader(&pattern{}, manyBytes)}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-sum, want.Sum(nil)) {
		t.Error("the input differs")
	}
}

// A reader that doesn't read must hold the command back, not fill the daemon's memory.
func TestSlowReaderHoldsTheCommandBack(t *testing.T) {
	const enough = 16 << 20 // far more than the sockets hold
	var written atomic.Int64
	started := make(chan struct{})
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		for buf := make([]byte, 64<<10); written.Load() < enough; {
			if _, err := s.Stdout.Write(buf); err != nil {
				return host.ExecResult{}, err
			}
			written.Add(int64(len(buf)))
		}
		return aResult, nil
	}}
	c := serve(t, api)
	release, done := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		_, err := c.Exec(context.Background(), host.ExecRequest{ID: "a"}, guest.Streams{Stdout: writerFunc(func(p []byte) (int, error) {
			if first {
				first = false
				close(started)
				<-release
			}
			return len(p), nil
		})})
		done <- err
	}()
	waitFor(t, started, "the first output")
	// The writer stops when everything between is full: wait until it hasn't moved for a while.
	for last := int64(-1); ; runtime.Gosched() {
		now := written.Load()
		if now == last {
			break
		}
		last = now
		time.Sleep(50 * time.Millisecond)
	}
	if n := written.Load(); n >= enough/2 {
		t.Errorf("%d bytes were written though nobody read", n)
	}
	close(release)
	if err := <-done; err != nil || written.Load() != enough {
		t.Errorf("%v after %d bytes", err, written.Load())
	}
}

type writerOnly struct{ io.Writer }

func TestCancelledExecIsCancelledAtTheHost(t *testing.T) {
	for _, what := range []string{"waiting", "writing", "reading"} {
		t.Run(what, func(t *testing.T) {
			ended := make(chan error, 1)
			begun := make(chan struct{})
			api := &scripted{exec: func(ctx context.Context, s guest.Streams) (host.ExecResult, error) {
				close(begun)
				var err error
				switch what {
				case "waiting":
					<-ctx.Done()
					err = ctx.Err()
				case "writing":
					for err == nil {
						_, err = s.Stdout.Write(make([]byte, 1<<20))
					}
				case "reading":
					_, err = io.ReadAll(s.Stdin)
				}
				ended <- err
				return host.ExecResult{}, err
			}}
			c := serve(t, api)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-begun; cancel() }()
			r, _ := io.Pipe() // never gives anything
			_, err := c.Exec(ctx, host.ExecRequest{ID: "a", Command: guest.ExecRequest{Stdin: true}}, guest.Streams{Stdin: r, Stdout: io.Discard})
			if CodeOf(err) != host.CodeCanceled {
				t.Errorf("the client got %v", err)
			}
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the host's exec ended as if nothing had happened")
				}
			case <-time.After(20 * time.Second):
				t.Error("the host's exec goes on")
			}
		})
	}
}

func TestPlainClientThatLeavesCancelsItsExec(t *testing.T) {
	ended := make(chan struct{})
	api := &scripted{exec: func(ctx context.Context, s guest.Streams) (host.ExecResult, error) {
		defer close(ended)
		io.WriteString(s.Stdout, "x")
		<-ctx.Done()
		return host.ExecResult{}, ctx.Err()
	}}
	c := serve(t, api)
	resp, err := c.send(t.Context(), "POST", "/v1/host/flashvms/a/exec", strings.NewReader(`{"argv":["sleep","9"]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Read(make([]byte, 1))
	resp.Body.Close()
	waitFor(t, ended, "the exec to be cancelled")
}

// A command that doesn't read its stdin must still get its signals, and its client's going away be noticed.
func TestSignalPassesUnreadInput(t *testing.T) {
	api := &scripted{exec: func(ctx context.Context, s guest.Streams) (host.ExecResult, error) {
		select {
		case sig := <-s.Signals:
			return host.ExecResult{ExitStatus: guest.ExitStatus{Code: 130, Signal: sig}}, nil
		case <-ctx.Done():
			return host.ExecResult{}, ctx.Err()
		}
	}}
	signals := make(chan string, 1)
	in := &countdown{n: stdinWindow / maxDataBytes, zero: func() { signals <- "INT" }}
	r := host.ExecRequest{ID: "a", Command: guest.ExecRequest{Stdin: true}}
	res, err := serve(t, api).Exec(t.Context(), r, guest.Streams{Stdin: in, Signals: signals})
	if err != nil || res.Signal != "INT" || res.Code != 130 {
		t.Errorf("%v %v", res, err)
	}
}

// countdown gives endless bytes and calls zero after n reads.
type countdown struct {
	n    int
	zero func()
}

func (c *countdown) Read(p []byte) (int, error) {
	if c.n--; c.n == 0 {
		c.zero()
	}
	return len(p), nil
}

func TestNewestWindowSizeArrives(t *testing.T) {
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		for size := range s.Resize {
			if size == (guest.WindowSize{Rows: 50, Cols: 200}) {
				break
			}
		}
		return aResult, nil
	}}
	sizes := make(chan guest.WindowSize, 3)
	sizes <- guest.WindowSize{Rows: 1, Cols: 2}
	sizes <- guest.WindowSize{Rows: 3, Cols: 4}
	sizes <- guest.WindowSize{Rows: 50, Cols: 200}
	if _, err := serve(t, api).Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{Resize: sizes}); err != nil {
		t.Error(err)
	}
}

func TestFailureAfterTheStartKeepsTheExecsName(t *testing.T) {
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		io.WriteString(s.Stdout, "half")
		return host.ExecResult{ExecID: "e7"}, host.Errorf(host.CodeGuestCrashed, "flash resume a", "the guest crashed")
	}}
	res, err := serve(t, api).Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{})
	if CodeOf(err) != host.CodeGuestCrashed || res.ExecID != "e7" {
		t.Errorf("%v %v", res, err)
	}
}

func TestClosedOutputOfTheCallerEndsTheExec(t *testing.T) {
	mine := errors.New("nobody reads me")
	ended := make(chan struct{})
	api := &scripted{exec: func(ctx context.Context, s guest.Streams) (host.ExecResult, error) {
		defer close(ended)
		for {
			if _, err := s.Stdout.Write(make([]byte, 1<<16)); err != nil {
				return host.ExecResult{}, err
			}
		}
	}}
	_, err := serve(t, api).Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{Stdout: failing{mine}})
	if !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	waitFor(t, ended, "the exec to end")
}

func TestPlainExecStreamsLines(t *testing.T) {
	api := &scripted{exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		in, _ := io.ReadAll(s.Stdin)
		s.Stdout.Write(in)
		io.WriteString(s.Stderr, "bad")
		return aResult, nil
	}}
	c := serve(t, api)
	status, body, err := c.Raw(t.Context(), "POST", "/v1/host/flashvms/a/exec", []byte(`{"argv":["cat"],"stdin":"aGkK","timeout_ms":5}`))
	if err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	if got := api.called().(host.ExecRequest); !got.Command.Stdin || got.Command.Timeout != 5*time.Millisecond || got.Checkpoint != nil {
		t.Errorf("the host got %+v", got)
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	if len(lines) != 3 || lines[0] != `{"stream":"stdout","data":"aGkK"}` || lines[1] != `{"stream":"stderr","data":"YmFk"}` {
		t.Fatalf("got %q", lines)
	}
	var end ExecEnd
	if err := json.Unmarshal([]byte(lines[2]), &end); err != nil || !reflect.DeepEqual(end.result(), aResult) {
		t.Errorf("%v: %s", err, lines[2])
	}
}

func TestPlainExecThatFailsAtOnceHasItsStatus(t *testing.T) {
	api := &scripted{exec: func(context.Context, guest.Streams) (host.ExecResult, error) {
		return host.ExecResult{}, host.Errorf(host.CodeVMNotRunning, "flash start a", "a is stopped")
	}}
	c := serve(t, api)
	status, body, err := c.Raw(t.Context(), "POST", "/v1/host/flashvms/a/exec", []byte(`{"argv":["ls"]}`))
	if err != nil || status != http.StatusConflict || !strings.Contains(string(body), `"vm_not_running"`) {
		t.Errorf("%d %s %v", status, body, err)
	}
	api.exec = func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
		io.WriteString(s.Stdout, "x")
		return host.ExecResult{ExecID: "e1"}, host.Errorf(host.CodeGuestCrashed, "r", "m")
	}
	_, body, _ = c.Raw(t.Context(), "POST", "/v1/host/flashvms/a/exec", []byte(`{"argv":["ls"]}`))
	if lines := strings.Split(strings.TrimSpace(string(body)), "\n"); lines[len(lines)-1] != `{"error":{"code":"guest_crashed","message":"m","remedy":"r"},"exec_id":"e1"}` {
		t.Errorf("last line %q", lines[len(lines)-1])
	}
}

// A daemon that dies in the middle of an exec is told as that, not as an exit code.
func TestDaemonThatDiesDuringAnExecIsTold(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Protocol+"\r\n\r\n\x02\x00\x00\x00\x04half")
	}()
	var out bytes.Buffer
	c := NewClient(path)
	defer c.Close()
	_, err = c.Exec(t.Context(), host.ExecRequest{ID: "a"}, guest.Streams{Stdout: &out})
	if CodeOf(err) != host.CodeDaemon || out.String() != "half" {
		t.Errorf("%v after %q", err, &out)
	}
}
