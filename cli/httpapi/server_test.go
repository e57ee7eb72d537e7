package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"flash/vmm/guest"
	"flash/vmm/host"
)

func ask(t *testing.T, h http.Handler, method, path, body string, header ...string) (int, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, r)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func TestEveryCodeHasItsStatusAndExitCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../vmm/host/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		k, ok := kinds[host.Code(text)]
		if !ok {
			t.Errorf("%s has no line in the table", spec.Names[0])
		} else if k.status < 400 || k.status > 599 || k.exit == 0 {
			t.Errorf("%s has status %d and exit code %d", spec.Names[0], k.status, k.exit)
		}
		return true
	})
	if found != len(kinds) || found == 0 {
		t.Errorf("%d codes, %d lines in the table", found, len(kinds))
	}
}

func TestForkAndCreateShareTheirRoute(t *testing.T) {
	api := &scripted{result: []host.VM{aVM}}
	s := New(Config{API: api})
	status, body := ask(t, s, "POST", "/v1/host/flashvms", `{"from":{"flashvm":"agent-1","checkpoint":3},"count":2}`)
	if got, ok := api.called().(host.ForkRequest); status != 201 || !ok || got.From != "agent-1" || *got.Checkpoint != 3 || got.Count != 2 || body[0] != '[' {
		t.Errorf("%d %s, the host got %#v", status, body, api.called())
	}
	api.result = aVM
	status, body = ask(t, s, "POST", "/v1/host/flashvms", `{"id":"agent-1","bundle":"busybox","vcpus":1,"mem_mib":512,"checkpoints":true}`)
	if got, ok := api.called().(host.CreateRequest); status != 201 || !ok || got.ID != "agent-1" || !got.Checkpoints || body[0] != '{' {
		t.Errorf("%d %s, the host got %#v", status, body, api.called())
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	const vm = "/v1/host/flashvms/a"
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"unknown field", "POST", "/v1/host/flashvms", `{"id":"a","memory":3}`, 400},
		{"a field of create in a fork", "POST", "/v1/host/flashvms", `{"from":{"flashvm":"a"},"bundle":"b"}`, 400},
		{"fork of nothing", "POST", "/v1/host/flashvms", `{"from":{}}`, 400},
		{"fork of null", "POST", "/v1/host/flashvms", `{"from":null}`, 400},
		{"no body", "POST", "/v1/host/flashvms", "", 400},
		{"null", "POST", "/v1/host/flashvms", "null", 400},
		{"a list", "POST", "/v1/host/flashvms", "[]", 400},
		{"two values", "POST", "/v1/host/flashvms", `{"id":"a"}{"id":"b"}`, 400},
		{"wrong type", "POST", "/v1/host/flashvms", `{"id":3}`, 400},
		{"too long", "POST", "/v1/host/flashvms", `{"id":"` + strings.Repeat("a", maxBodyBytes) + `"}`, 400},
		{"no change", "PATCH", vm, `{}`, 400},
		{"two changes", "PATCH", vm, `{"checkpoint":1,"state":"stopped"}`, 400},
		{"unknown state", "PATCH", vm, `{"state":"paused"}`, 400},
		{"discard without stop", "PATCH", vm, `{"state":"running","discard":true}`, 400},
		{"rewind to text", "PATCH", vm, `{"checkpoint":"3"}`, 400},
		{"pin without saying", "PATCH", vm + "/checkpoints/3", `{}`, 400},
		{"pin of no number", "PATCH", vm + "/checkpoints/x3", `{"pinned":true}`, 400},
		{"pin of a number and more", "PATCH", vm + "/checkpoints/3x", `{"pinned":true}`, 400},
		{"pin of a negative", "PATCH", vm + "/checkpoints/-3", `{"pinned":true}`, 400},
		{"diff from nothing", "GET", vm + "/diff", "", 400},
		{"diff to text", "GET", vm + "/diff?from=1&to=x", "", 400},
		{"force that is neither", "DELETE", vm + "?force=perhaps", "", 400},
		{"files of no path", "GET", vm + "/files", "", 400},
		{"negative time-out", "POST", vm + "/exec", `{"argv":["a"],"timeout_ms":-1}`, 400},
		{"time-out beyond time", "POST", vm + "/exec", `{"argv":["a"],"timeout_ms":9223372036854775807}`, 400},
		{"stdin that isn't base64", "POST", vm + "/exec", `{"argv":["a"],"stdin":"%"}`, 400},
		{"attached stdin without an upgrade", "POST", vm + "/exec", `{"argv":["a"],"attach_stdin":true}`, 400},
		{"bundle of both", "POST", "/v1/host/bundles", `{"build":{"kind":"busybox"},"import":{"path":"/x"}}`, 400},
		{"bundle of neither", "POST", "/v1/host/bundles", `{}`, 400},
		{"no such route", "GET", "/v1/host/nonsense", "", 404},
		{"no such version", "GET", "/v2/host/flashvms", "", 404},
		{"wrong method", "PUT", vm, `{}`, 405},
		{"shutdown that isn't offered", "POST", "/v1/host/shutdown", "", 501},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := &scripted{}
			status, body := ask(t, New(Config{API: api}), tc.method, tc.path, tc.body)
			var e ErrorBody
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
				t.Fatalf("%d %q: %v", status, body, err)
			}
			if status != tc.status || e.Error.Code == "" || e.Error.Message == "" || e.Error.Remedy == "" {
				t.Errorf("%d %s, want %d", status, body, tc.status)
			}
			if api.called() != nil {
				t.Errorf("the host was asked: %#v", api.called())
			}
		})
	}
}

func TestRequestIDComesFromBodyOrHeader(t *testing.T) {
	api := &scripted{}
	s := New(Config{API: api})
	const path, body = "/v1/host/flashvms/a/checkpoints", `{"label":"x"}`
	ask(t, s, "POST", path, body, "Idempotency-Key", "k1")
	if got := api.called().(host.CheckpointRequest).RequestID; got != "k1" {
		t.Errorf("from the header: %q", got)
	}
	ask(t, s, "POST", path, `{"label":"x","request_id":"k2"}`, "Idempotency-Key", "k2")
	if got := api.called().(host.CheckpointRequest).RequestID; got != "k2" {
		t.Errorf("from both: %q", got)
	}
	if status, _ := ask(t, s, "POST", path, `{"label":"x","request_id":"k2"}`, "Idempotency-Key", "k3"); status != 400 {
		t.Errorf("two ids: %d", status)
	}
}

func TestListOfNothingIsAnEmptyList(t *testing.T) {
	s := New(Config{API: &scripted{}})
	for _, path := range []string{"/v1/host/flashvms", "/v1/host/bundles", "/v1/host/flashvms/a/checkpoints", "/v1/host/flashvms/a/ledger", "/v1/host/flashvms/a/execs"} {
		if _, body := ask(t, s, "GET", path, ""); strings.TrimSpace(body) != "[]" {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestPanicIsToldAndTheServerLives(t *testing.T) {
	s := New(Config{API: &scripted{exec: func(context.Context, guest.Streams) (host.ExecResult, error) { panic("a bug") }}})
	status, body := ask(t, s, "POST", "/v1/host/flashvms/a/exec", `{"argv":["x"]}`)
	if status != 500 || !strings.Contains(body, `"internal"`) {
		t.Errorf("%d %s", status, body)
	}
}

const goodToken = "0123456789abcdefghijkl"

func TestTCPWantsItsToken(t *testing.T) {
	s := New(Config{API: &scripted{result: []host.VM{aVM}}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.ServeTCP(l, goodToken) }()
	defer func() {
		s.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for token, want := range map[string]host.Code{
		goodToken:       "",
		"":              host.CodeUnauthorized,
		goodToken[:21]:  host.CodeUnauthorized,
		goodToken + "x": host.CodeUnauthorized,
	} {
		c := NewTCPClient(addr, token)
		if _, err := c.List(t.Context()); CodeOf(err) != want {
			t.Errorf("token %q: %v", token, err)
		}
		c.Close()
	}
	for _, header := range []string{"Basic " + goodToken, goodToken, "Bearer", "bearer  " + goodToken + " x"} {
		if status, _ := ask(t, withToken(goodToken, s), "GET", "/v1/host/flashvms", "", "Authorization", header); status != 401 {
			t.Errorf("%q: %d", header, status)
		}
	}
}

func TestTCPIsNotServedWithoutAToken(t *testing.T) {
	s := New(Config{API: &scripted{}})
	for _, token := range []string{"", "short", strings.Repeat("a b", 10)} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ServeTCP(l, token); err == nil {
			t.Errorf("it was served with the token %q", token)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); err == nil {
		t.Error("Serve served TCP")
	}
}

func TestSocketIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	l.Close()
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLiveDaemonsSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := ListenUnix(path); CodeOf(err) != host.CodeStoreLocked {
		t.Errorf("got %v", err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first daemon's socket is gone: %v", err)
	} else {
		conn.Close()
	}
}

func TestDeadDaemonsSocketIsReplaced(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path); err == nil {
		t.Error("a file was taken for a socket")
	}
	if p, _ := os.ReadFile(path); string(p) != "mine" {
		t.Error("the file is gone")
	}
}

func TestClosingLeavesASuccessorsSocketAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	first, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	second, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	}
}

func TestShutdownLetsRequestsFinishAndEndsFollowers(t *testing.T) {
	begun, finish := make(chan struct{}, 2), make(chan struct{})
	api := &scripted{
		exec: func(_ context.Context, s guest.Streams) (host.ExecResult, error) {
			begun <- struct{}{}
			<-finish
			return aResult, nil
		},
		out: func(ctx context.Context, w io.Writer) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{API: api})
	go s.Serve(l)
	c := NewClient(path)
	execDone, logsDone := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(), host.ExecRequest{ID: "a"}, guest.Streams{})
		execDone <- err
	}()
	<-begun
	go func() { logsDone <- c.Logs(context.Background(), "a", true, io.Discard) }()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	if err := <-logsDone; CodeOf(err) != host.CodeCanceled {
		t.Errorf("the follower got %v", err)
	}
	select {
	case <-stopped:
		t.Error("Shutdown didn't wait for the exec")
	default:
	}
	close(finish)
	if err := <-execDone; err != nil {
		t.Errorf("the exec was cut off: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestShutdownCancelsWhatDoesNotFinish(t *testing.T) {
	begun := make(chan struct{})
	api := &scripted{exec: func(ctx context.Context, s guest.Streams) (host.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return host.ExecResult{}, ctx.Err()
	}}
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{API: api})
	go s.Serve(l)
	done := make(chan error, 1)
	go func() {
		_, err := NewClient(path).Exec(context.Background(), host.ExecRequest{ID: "a"}, guest.Streams{})
		done <- err
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("Shutdown says that nothing was cancelled")
	}
	if err := <-done; CodeOf(err) != host.CodeCanceled {
		t.Errorf("the client got %v", err)
	}
}

func TestClientThatSendsNoHeaderIsCutOff(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{API: &scripted{}, headerTimeout: 50 * time.Millisecond})
	go s.Serve(l)
	defer s.Shutdown(context.Background())
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/host/health HTTP/1.1\r\nX-Slow: ")
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := bufio.NewReader(conn).ReadString('\x00'); err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestShutdownRouteEndsTheServer(t *testing.T) {
	asked := make(chan struct{})
	s := New(Config{API: &scripted{}, Shutdown: func() { close(asked) }})
	if status, _ := ask(t, s, "POST", "/v1/host/shutdown", ""); status != 202 {
		t.Errorf("%d", status)
	}
	waitFor(t, asked, "the shutdown")
}
