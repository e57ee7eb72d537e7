package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"flash/cas"
	"flash/store"
	"flash/vmm"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// scripted is a host.API whose every method is a field, and which remembers what it was called with.
type scripted struct {
	mu  sync.Mutex // guards got
	got any        // the request, or the arguments as a slice

	result any // what to answer
	err    error
	exec   func(ctx context.Context, s guest.Streams) (host.ExecResult, error)
	in     func(tar io.Reader) error
	out    func(ctx context.Context, w io.Writer) error
	steps  []host.Progress
}

func (s *scripted) note(got any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = got
}

func (s *scripted) called() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func answer[T any](s *scripted, got any) (T, error) {
	s.note(got)
	if s.err != nil {
		var zero T
		return zero, s.err
	}
	v, _ := s.result.(T)
	return v, nil
}

func (s *scripted) Create(_ context.Context, r host.CreateRequest) (host.VM, error) {
	return answer[host.VM](s, r)
}
func (s *scripted) Fork(_ context.Context, r host.ForkRequest) ([]host.VM, error) {
	return answer[[]host.VM](s, r)
}
func (s *scripted) List(context.Context) ([]host.VM, error) { return answer[[]host.VM](s, nil) }
func (s *scripted) Get(_ context.Context, id string) (host.VM, error) {
	return answer[host.VM](s, id)
}
func (s *scripted) Rewind(_ context.Context, r host.RewindRequest) (host.RewindResult, error) {
	return answer[host.RewindResult](s, r)
}
func (s *scripted) Start(_ context.Context, id string) (host.VM, error) {
	return answer[host.VM](s, id)
}
func (s *scripted) Stop(_ context.Context, r host.StopRequest) (host.VM, error) {
	return answer[host.VM](s, r)
}
func (s *scripted) Update(_ context.Context, r host.UpdateRequest) (host.VM, error) {
	return answer[host.VM](s, r)
}
func (s *scripted) Remove(_ context.Context, r host.RemoveRequest) error {
	_, err := answer[any](s, r)
	return err
}
func (s *scripted) History(_ context.Context, id string) ([]host.Checkpoint, error) {
	return answer[[]host.Checkpoint](s, id)
}
func (s *scripted) Checkpoint(_ context.Context, r host.CheckpointRequest) (host.Checkpoint, error) {
	return answer[host.Checkpoint](s, r)
}
func (s *scripted) Pin(_ context.Context, id string, n int, pinned bool) (host.Checkpoint, error) {
	return answer[host.Checkpoint](s, []any{id, n, pinned})
}
func (s *scripted) Diff(_ context.Context, r host.DiffRequest) (host.Diff, error) {
	return answer[host.Diff](s, r)
}
func (s *scripted) Ledger(_ context.Context, id string) ([]store.LedgerEntry, error) {
	return answer[[]store.LedgerEntry](s, id)
}
func (s *scripted) Exec(ctx context.Context, r host.ExecRequest, st guest.Streams) (host.ExecResult, error) {
	s.note(r)
	return s.exec(ctx, st)
}
func (s *scripted) AttachExec(ctx context.Context, id, exec string, st guest.Streams) (host.ExecResult, error) {
	s.note([]any{id, exec})
	return s.exec(ctx, st)
}
func (s *scripted) Execs(_ context.Context, id string) ([]guest.ExecInfo, error) {
	return answer[[]guest.ExecInfo](s, id)
}
func (s *scripted) CopyIn(_ context.Context, id, dir string, tar io.Reader) error {
	s.note([]any{id, dir})
	if s.err != nil {
		return s.err
	}
	return s.in(tar)
}
func (s *scripted) CopyOut(ctx context.Context, id, path string, w io.Writer) error {
	s.note([]any{id, path})
	if s.err != nil {
		return s.err
	}
	return s.out(ctx, w)
}
func (s *scripted) Logs(ctx context.Context, id string, follow bool, w io.Writer) error {
	s.note([]any{id, follow})
	if s.err != nil {
		return s.err
	}
	return s.out(ctx, w)
}
func (s *scripted) RemoveCheckpoint(_ context.Context, id string, n int) error {
	_, err := answer[any](s, []any{id, n})
	return err
}
func (s *scripted) GC(_ context.Context, r host.GCRequest) (host.GCReport, error) {
	return answer[host.GCReport](s, r)
}
func (s *scripted) Check(_ context.Context, r host.CheckRequest) (store.CheckReport, error) {
	return answer[store.CheckReport](s, r)
}
func (s *scripted) Debug(_ context.Context, r host.DebugRequest) (host.DebugDump, error) {
	return answer[host.DebugDump](s, r)
}
func (s *scripted) Bundles(context.Context) ([]host.Bundle, error) {
	return answer[[]host.Bundle](s, nil)
}
func (s *scripted) BuildBundle(_ context.Context, r host.BuildRequest, p func(host.Progress)) (host.Bundle, error) {
	for _, step := range s.steps {
		p(step)
	}
	return answer[host.Bundle](s, r)
}
func (s *scripted) ImportBundle(_ context.Context, r host.ImportRequest, p func(host.Progress)) (host.Bundle, error) {
	for _, step := range s.steps {
		p(step)
	}
	return answer[host.Bundle](s, r)
}
func (s *scripted) RemoveBundle(_ context.Context, name string) error {
	_, err := answer[any](s, name)
	return err
}
func (s *scripted) Info(context.Context) (host.Info, error) { return answer[host.Info](s, nil) }

// serve gives a client of api over a unix socket.
func serve(t *testing.T, api host.API) *Client {
	t.Helper()
	path := filepath.Join(socketDir(t), "flash.sock")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{API: api})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c := NewClient(path)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("a request was still running at the end: %v", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// socketDir is a folder whose name is short enough for a socket, which t.TempDir's may not be.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func ptr[T any](v T) *T { return &v }

var (
	when = time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	aVM  = host.VM{ID: "agent-1", State: "running", Bundle: "busybox", VCPUs: 2, MemMiB: 512, Checkpoints: 3, Head: ptr(3),
		Created: when, EachCommand: true, Ports: []vmm.Port{{Host: 8080, Guest: 80}}, From: &store.ForkPoint{VM: "a", Number: 1},
		Restart: "always", Reason: "why", PID: 7, Notice: "connections are dead"}
	aCheckpoint = host.Checkpoint{Number: 3, Parent: ptr(2), Label: "sh run-tests.sh", Created: when, ExitCode: ptr(1), Pinned: true,
		Head: true, NewBytes: 4096, From: &store.ForkPoint{VM: "a", Number: 1}, Timing: &host.Timing{PauseMicros: 1, FreezeMicros: 2, StoreMicros: 3, Pages: 4, Blocks: 5, NewChunks: 6}}
	aBundle = host.Bundle{Name: "busybox", Created: when, DiskMiB: 64, NewBytes: 9, Snapshot: "abc", Source: "build busybox"}
	aResult = host.ExecResult{ExitStatus: guest.ExitStatus{Code: 137, Signal: "KILL", TimedOut: true}, ExecID: "e7", Checkpoint: &aCheckpoint}
)

type apiCall struct {
	want   any
	result any
	call   func(ctx context.Context, a host.API) (any, error)
}

// everyCall is calls and remoteCalls.
func everyCall() map[string]apiCall {
	all := maps.Clone(calls)
	maps.Copy(all, remoteCalls)
	return all
}

// calls is every method of host.API but the streaming ones: what goes in must arrive, what is answered must come back.
var calls = map[string]apiCall{
	"Create": {host.CreateRequest{RequestID: "r1", ID: "a", Bundle: "b", VCPUs: 2, MemMiB: 3, Checkpoints: true, Ports: aVM.Ports, Restart: "always"}, aVM,
		func(ctx context.Context, a host.API) (any, error) {
			return a.Create(ctx, host.CreateRequest{RequestID: "r1", ID: "a", Bundle: "b", VCPUs: 2, MemMiB: 3, Checkpoints: true, Ports: aVM.Ports, Restart: "always"})
		}},
	"Fork": {host.ForkRequest{RequestID: "r1", From: "a", Checkpoint: ptr(0), Count: 2, IDs: []string{"x", "y"}, Ports: aVM.Ports}, []host.VM{aVM, aVM},
		func(ctx context.Context, a host.API) (any, error) {
			return a.Fork(ctx, host.ForkRequest{RequestID: "r1", From: "a", Checkpoint: ptr(0), Count: 2, IDs: []string{"x", "y"}, Ports: aVM.Ports})
		}},
	"Fork the present": {host.ForkRequest{From: "a"}, []host.VM{aVM},
		func(ctx context.Context, a host.API) (any, error) {
			return a.Fork(ctx, host.ForkRequest{From: "a"})
		}},
	"List":      {nil, []host.VM{aVM}, func(ctx context.Context, a host.API) (any, error) { return a.List(ctx) }},
	"List none": {nil, []host.VM{}, func(ctx context.Context, a host.API) (any, error) { return a.List(ctx) }},
	"Get":       {"odd/name %", aVM, func(ctx context.Context, a host.API) (any, error) { return a.Get(ctx, "odd/name %") }},
	"Rewind": {host.RewindRequest{RequestID: "r1", ID: "a", Checkpoint: 0}, host.RewindResult{VM: aVM, Saved: &aCheckpoint}, func(ctx context.Context, a host.API) (any, error) {
		return a.Rewind(ctx, host.RewindRequest{RequestID: "r1", ID: "a"})
	}},
	"Start": {"a", aVM, func(ctx context.Context, a host.API) (any, error) { return a.Start(ctx, "a") }},
	"Stop": {host.StopRequest{ID: "a", Discard: true}, aVM, func(ctx context.Context, a host.API) (any, error) {
		return a.Stop(ctx, host.StopRequest{ID: "a", Discard: true})
	}},
	"Update": {host.UpdateRequest{ID: "a", Restart: "always"}, aVM, func(ctx context.Context, a host.API) (any, error) {
		return a.Update(ctx, host.UpdateRequest{ID: "a", Restart: "always"})
	}},
	"Remove": {host.RemoveRequest{ID: "a", Force: true}, nil, func(ctx context.Context, a host.API) (any, error) {
		return nil, a.Remove(ctx, host.RemoveRequest{ID: "a", Force: true})
	}},
	"History": {"a", []host.Checkpoint{aCheckpoint}, func(ctx context.Context, a host.API) (any, error) { return a.History(ctx, "a") }},
	"Checkpoint": {host.CheckpointRequest{RequestID: "r1", ID: "a", Label: "l", Pin: true}, aCheckpoint, func(ctx context.Context, a host.API) (any, error) {
		return a.Checkpoint(ctx, host.CheckpointRequest{RequestID: "r1", ID: "a", Label: "l", Pin: true})
	}},
	"Pin": {[]any{"a", 3, false}, aCheckpoint, func(ctx context.Context, a host.API) (any, error) { return a.Pin(ctx, "a", 3, false) }},
	"Diff": {host.DiffRequest{ID: "a", From: 1, To: ptr(2)}, host.Diff{From: 1, To: 2, MemoryPages: 3, DiskBlocks: 4, Files: []host.FileChange{{Path: "/x", Change: "added", Bytes: 5}}, Note: "n"},
		func(ctx context.Context, a host.API) (any, error) {
			return a.Diff(ctx, host.DiffRequest{ID: "a", From: 1, To: ptr(2)})
		}},
	"Diff to the newest": {host.DiffRequest{ID: "a", From: 1}, host.Diff{From: 1, To: 2}, func(ctx context.Context, a host.API) (any, error) {
		return a.Diff(ctx, host.DiffRequest{ID: "a", From: 1})
	}},
	"Ledger":  {"a", []store.LedgerEntry{{Seq: 1, Time: when, Kind: "exec", Data: json.RawMessage(`{"argv":["ls"]}`)}}, func(ctx context.Context, a host.API) (any, error) { return a.Ledger(ctx, "a") }},
	"Execs":   {"a", []guest.ExecInfo{{ID: "e", Argv: []string{"ls"}, Running: true}}, func(ctx context.Context, a host.API) (any, error) { return a.Execs(ctx, "a") }},
	"Bundles": {nil, []host.Bundle{aBundle}, func(ctx context.Context, a host.API) (any, error) { return a.Bundles(ctx) }},
	"BuildBundle": {host.BuildRequest{Kind: "busybox", Name: "n", DiskMiB: 8}, aBundle, func(ctx context.Context, a host.API) (any, error) {
		return a.BuildBundle(ctx, host.BuildRequest{Kind: "busybox", Name: "n", DiskMiB: 8}, nil)
	}},
	"ImportBundle": {host.ImportRequest{Path: "/p", Name: "n", DiskMiB: 8}, aBundle, func(ctx context.Context, a host.API) (any, error) {
		return a.ImportBundle(ctx, host.ImportRequest{Path: "/p", Name: "n", DiskMiB: 8}, nil)
	}},
	"RemoveCheckpoint": {[]any{"a", 3}, nil, func(ctx context.Context, a host.API) (any, error) { return nil, a.RemoveCheckpoint(ctx, "a", 3) }},
	"GC": {host.GCRequest{Apply: true, VMs: []string{"a"}, Retention: &store.Retention{KeepLast: 3, KeepHourly: 4, KeepDaily: 5, OlderThanSeconds: 6, MaxBytes: 7}, Save: true, Background: new(bool), EveryMinutes: 8, BudgetBytes: new(int64)},
		host.GCReport{GCReport: store.GCReport{Applied: true, Removed: []store.RemovedCheckpoint{{VM: "a", Number: 1, Label: "l", Created: when, NewBytes: 2}}, Snapshots: 3,
			Sweep: cas.SweepStats{Packs: 1, FreedBytes: 2, Postponed: 3}, Freed: 4, Took: 5}, Rules: map[string]store.Retention{"": {KeepLast: 1}}, Settings: store.Settings{GCOff: true, BudgetBytes: 9}, Usage: store.Usage{PackBytes: 1, Budget: 9, Limit: 8}},
		func(ctx context.Context, a host.API) (any, error) {
			return a.GC(ctx, host.GCRequest{Apply: true, VMs: []string{"a"}, Retention: &store.Retention{KeepLast: 3, KeepHourly: 4, KeepDaily: 5, OlderThanSeconds: 6, MaxBytes: 7}, Save: true, Background: new(bool), EveryMinutes: 8, BudgetBytes: new(int64)})
		}},
	"Check": {host.CheckRequest{Read: 0.25, Repair: true}, store.CheckReport{Read: cas.VerifyStats{Packs: 1, Records: 2}, Snapshots: 3, Worst: store.Damage, Repair: &cas.RepairStats{Packs: 4, Quarantined: []string{"x"}},
		Findings: []store.Finding{{Severity: store.Damage, Kind: "chunk", Pack: "p", Offset: 64, Hash: cas.Hash{1, 2}, Reason: "r", Touches: []store.Name{{VM: "a", Number: 1}}}, {Severity: store.Harmless, Kind: "pack", Touches: []store.Name{}}}},
		func(ctx context.Context, a host.API) (any, error) {
			return a.Check(ctx, host.CheckRequest{Read: 0.25, Repair: true})
		}},
	"Debug": {host.DebugRequest{What: "snapshot", Name: "a@3 %"}, host.DebugDump{Facts: []host.Fact{{Name: "n", Value: "v"}}, Columns: []string{"C"}, Rows: [][]string{{"1"}}},
		func(ctx context.Context, a host.API) (any, error) {
			return a.Debug(ctx, host.DebugRequest{What: "snapshot", Name: "a@3 %"})
		}},
	"RemoveBundle": {"b", nil, func(ctx context.Context, a host.API) (any, error) { return nil, a.RemoveBundle(ctx, "b") }},
	"Info":         {nil, host.Info{Version: "1", PID: 2, Home: "/h", Capabilities: vmm.Capabilities{Tracker: "pagemap-scan", LazyPager: true, Reasons: map[string]string{"kvm": "no vmx"}}}, func(ctx context.Context, a host.API) (any, error) { return a.Info(ctx) }},
}

func TestEveryCallArrivesAndItsAnswerComesBack(t *testing.T) {
	api := &scripted{}
	c := serve(t, api)
	for name, tc := range everyCall() {
		t.Run(name, func(t *testing.T) {
			api.note(nil)
			api.result, api.err = tc.result, nil
			res, err := tc.call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(api.called(), tc.want) {
				t.Errorf("the host got\n %#v, want\n %#v", api.called(), tc.want)
			}
			if !reflect.DeepEqual(res, tc.result) {
				t.Errorf("the client got\n %#v, want\n %#v", res, tc.result)
			}
		})
	}
}

func TestEveryCallsFailureComesBackWhole(t *testing.T) {
	api := &scripted{err: &host.Error{Code: host.CodeCheckpointNotFound, Message: "agent-1 has no checkpoint 9", Remedy: "flash history agent-1 lists them"}}
	c := serve(t, api)
	api.exec = func(context.Context, guest.Streams) (host.ExecResult, error) { return host.ExecResult{}, api.err }
	all := map[string]func(ctx context.Context, a host.API) (any, error){}
	for name, tc := range everyCall() {
		all[name] = tc.call
	}
	all["Exec"] = func(ctx context.Context, a host.API) (any, error) {
		return a.Exec(ctx, host.ExecRequest{ID: "a"}, guest.Streams{})
	}
	all["AttachExec"] = func(ctx context.Context, a host.API) (any, error) { return a.AttachExec(ctx, "a", "", guest.Streams{}) }
	all["CopyIn"] = func(ctx context.Context, a host.API) (any, error) {
		return nil, a.CopyIn(ctx, "a", "/", strings.NewReader("x"))
	}
	all["CopyOut"] = func(ctx context.Context, a host.API) (any, error) { return nil, a.CopyOut(ctx, "a", "/", io.Discard) }
	all["Logs"] = func(ctx context.Context, a host.API) (any, error) { return nil, a.Logs(ctx, "a", true, io.Discard) }
	for name, call := range all {
		_, err := call(t.Context(), c)
		var e *host.Error
		if !errors.As(err, &e) || !reflect.DeepEqual(e, api.err) {
			t.Errorf("%s: got %#v, want %#v", name, err, api.err)
		}
	}
	// Every method is tried above: a new one must be added.
	methods := reflect.TypeFor[host.API]()
	for i := range methods.NumMethod() {
		if m := methods.Method(i).Name; all[m] == nil {
			t.Errorf("%s isn't tried", m)
		}
	}
}

func TestBundleProgressIsStreamed(t *testing.T) {
	steps := []host.Progress{{Step: "rootfs", Done: 1, Total: 2, Unit: "files"}, {Step: "store", Done: 2, Total: 2, Unit: "bytes"}}
	api := &scripted{result: aBundle, steps: steps}
	c := serve(t, api)
	var got []host.Progress
	if _, err := c.BuildBundle(t.Context(), host.BuildRequest{Kind: "busybox"}, func(p host.Progress) { got = append(got, p) }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, steps) {
		t.Errorf("got %v, want %v", got, steps)
	}
	api.err = host.Errorf(host.CodeNoSpace, "free some", "full")
	_, err := c.ImportBundle(t.Context(), host.ImportRequest{Path: "/x"}, nil)
	if e := ErrorOf(err); e.Code != host.CodeNoSpace || e.Remedy != "free some" {
		t.Errorf("a failure after progress came back as %v", err)
	}
}

func TestFilesGoInAndOutWhole(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	var got []byte
	api := &scripted{
		in:  func(r io.Reader) (err error) { got, err = io.ReadAll(r); return err },
		out: func(_ context.Context, w io.Writer) error { _, err := w.Write(data); return err },
	}
	c := serve(t, api)
	if err := c.CopyIn(t.Context(), "a", "/tmp/x y", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) || !reflect.DeepEqual(api.called(), []any{"a", "/tmp/x y"}) {
		t.Errorf("%d bytes arrived for %v", len(got), api.called())
	}
	var out bytes.Buffer
	if err := c.CopyOut(t.Context(), "a", "/etc", &out); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes came out", out.Len())
	}
}

func TestFailureInTheMiddleOfAFileIsNotSuccess(t *testing.T) {
	fail := host.Errorf(host.CodeNoSpace, "free some", "the guest's disk is full")
	api := &scripted{
		in: func(r io.Reader) error { io.ReadFull(r, make([]byte, 100)); return fail },
		out: func(_ context.Context, w io.Writer) error {
			w.Write(make([]byte, 5000))
			return fail
		},
	}
	c := serve(t, api)
	endless := io.LimitReader(zeros{}, 64<<20)
	if e := ErrorOf(c.CopyIn(t.Context(), "a", "/", endless)); e == nil || e.Code != host.CodeNoSpace {
		t.Errorf("in: %v", e)
	}
	if e := ErrorOf(c.CopyOut(t.Context(), "a", "/", io.Discard)); e == nil || e.Code != host.CodeNoSpace || e.Remedy != "free some" {
		t.Errorf("out: %v", e)
	}
	if e := ErrorOf(c.Logs(t.Context(), "a", false, io.Discard)); e == nil || e.Code != host.CodeNoSpace {
		t.Errorf("logs: %v", e)
	}
}

func TestCallersOwnFailureIsTheCallers(t *testing.T) {
	mine := errors.New("my disk failed")
	api := &scripted{
		in: func(r io.Reader) error {
			if _, err := io.ReadAll(r); err == nil {
				t.Error("the host saw a whole file")
			}
			return nil
		},
		out: func(_ context.Context, w io.Writer) error { w.Write(make([]byte, 5000)); return nil },
	}
	c := serve(t, api)
	if err := c.CopyIn(t.Context(), "a", "/", io.MultiReader(strings.NewReader("begin"), failing{mine})); !errors.Is(err, mine) {
		t.Errorf("in: %v", err)
	}
	if err := c.CopyOut(t.Context(), "a", "/", failing{mine}); !errors.Is(err, mine) {
		t.Errorf("out: %v", err)
	}
}

func TestFollowedLogEndsWhenItsReaderGoes(t *testing.T) {
	ended := make(chan struct{})
	api := &scripted{out: func(ctx context.Context, w io.Writer) error {
		defer close(ended)
		io.WriteString(w, "boot\n")
		<-ctx.Done()
		return ctx.Err()
	}}
	c := serve(t, api)
	ctx, cancel := context.WithCancel(t.Context())
	seen := writerFunc(func(p []byte) (int, error) {
		if string(p) != "boot\n" {
			t.Errorf("got %q", p)
		}
		cancel()
		return len(p), nil
	})
	if e := ErrorOf(c.Logs(ctx, "a", true, seen)); e == nil || e.Code != host.CodeCanceled {
		t.Errorf("got %v", e)
	}
	waitFor(t, ended, "the host's Logs to end")
}

func TestNoDaemonIsToldAsSuch(t *testing.T) {
	c := NewClient(filepath.Join(socketDir(t), "none.sock"))
	if e := ErrorOf(c.Health(t.Context())); e == nil || e.Code != host.CodeDaemon || e.Remedy == "" {
		t.Errorf("got %#v", e)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func waitFor(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited 20 s for %s", what)
	}
}

var _ net.Listener = (*listener)(nil)
