package httpapi

import (
	"fmt"
	"time"

	"flash/vmm"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// forkBody is the body of POST flashvms that has a "from"; without one the body is a host.CreateRequest.
type forkBody struct {
	RequestID string     `json:"request_id,omitempty"`
	From      *forkFrom  `json:"from"`
	Count     int        `json:"count,omitempty"`
	IDs       []string   `json:"ids,omitempty"`
	Ports     []vmm.Port `json:"ports,omitempty"`
}

type forkFrom struct {
	VM         string `json:"flashvm"`
	Checkpoint *int   `json:"checkpoint"` // null: the present
}

// changeBody is the body of PATCH flashvms/{vm_id}: exactly one of Checkpoint, State and Restart.
type changeBody struct {
	RequestID  string `json:"request_id,omitempty"` // of a rewind
	Checkpoint *int   `json:"checkpoint,omitempty"`
	State      string `json:"state,omitempty"`   // "stopped" "running"
	Discard    bool   `json:"discard,omitempty"` // with "stopped"
	Restart    string `json:"restart,omitempty"` // "no" "always"
}

type checkpointBody struct {
	RequestID string `json:"request_id,omitempty"`
	Label     string `json:"label"`
	Pin       bool   `json:"pin"`
}

type pinBody struct {
	Pinned *bool `json:"pinned"`
}

// execBody is the body of POST exec. Stdin is for plain clients, AttachStdin for upgraded ones.
type execBody struct {
	RequestID     string   `json:"request_id,omitempty"`
	Argv          []string `json:"argv"`
	Env           []string `json:"env,omitempty"` // "NAME=value"
	Cwd           string   `json:"cwd,omitempty"`
	User          string   `json:"user,omitempty"`
	TTY           bool     `json:"tty,omitempty"`
	Rows          uint16   `json:"rows,omitempty"`
	Cols          uint16   `json:"cols,omitempty"`
	Stdin         []byte   `json:"stdin,omitempty"` // base64
	AttachStdin   bool     `json:"attach_stdin,omitempty"`
	TimeoutMillis int64    `json:"timeout_ms,omitempty"`
	Checkpoint    *bool    `json:"checkpoint,omitempty"` // absent: as the VM was run
}

// maxTimeoutMillis keeps a time-out within time.Duration with room to add to.
const maxTimeoutMillis = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

func (b execBody) request(vm, requestID string) (host.ExecRequest, error) {
	if b.TimeoutMillis < 0 || b.TimeoutMillis > maxTimeoutMillis {
		return host.ExecRequest{}, host.Errorf(host.CodeInvalid, "give milliseconds, 0 for none", "timeout_ms is %d", b.TimeoutMillis)
	}
	return host.ExecRequest{
		RequestID:  requestID,
		ID:         vm,
		Checkpoint: b.Checkpoint,
		Command: guest.ExecRequest{
			Argv: b.Argv, Env: b.Env, Cwd: b.Cwd, User: b.User,
			TTY: b.TTY, Rows: b.Rows, Cols: b.Cols,
			Stdin:   b.AttachStdin || len(b.Stdin) > 0,
			Timeout: time.Duration(b.TimeoutMillis) * time.Millisecond,
		},
	}, nil
}

// bodyOf is request's inverse, for the client. A time-out is rounded up to a millisecond: 0 would mean none.
func bodyOf(r host.ExecRequest) execBody {
	c := r.Command
	return execBody{
		RequestID: r.RequestID,
		Argv:      c.Argv, Env: c.Env, Cwd: c.Cwd, User: c.User,
		TTY: c.TTY, Rows: c.Rows, Cols: c.Cols,
		AttachStdin:   c.Stdin,
		TimeoutMillis: int64((c.Timeout + time.Millisecond - 1) / time.Millisecond),
		Checkpoint:    r.Checkpoint,
	}
}

type attachBody struct {
	AttachStdin bool `json:"attach_stdin,omitempty"`
}

// OutputLine is one x-ndjson line of exec or attach.
type OutputLine struct {
	Stream string `json:"stream"` // stdout stderr
	Data   []byte `json:"data"`   // base64
}

// ExecEnd is how an exec ended, as the last line of a stream and as frame 6.
type ExecEnd struct {
	ExitCode   int              `json:"exit_code"`
	Signal     string           `json:"signal"`
	TimedOut   bool             `json:"timed_out"`
	ExecID     string           `json:"exec_id"`
	Checkpoint *host.Checkpoint `json:"checkpoint"`
}

// EndOf tells a result as the doors do.
func EndOf(r host.ExecResult) ExecEnd {
	return ExecEnd{r.Code, r.Signal, r.TimedOut, r.ExecID, r.Checkpoint}
}

func (e ExecEnd) result() host.ExecResult {
	return host.ExecResult{
		ExitStatus: guest.ExitStatus{Code: e.ExitCode, Signal: e.Signal, TimedOut: e.TimedOut},
		ExecID:     e.ExecID,
		Checkpoint: e.Checkpoint,
	}
}

// execError is a failure of an exec; with an id the command had been started.
type execError struct {
	ErrorBody
	ExecID string `json:"exec_id,omitempty"`
}

// bundleBody is the body of POST bundles: exactly one of its fields.
type bundleBody struct {
	Build  *host.BuildRequest  `json:"build,omitempty"`
	Import *host.ImportRequest `json:"import,omitempty"`
}

// bundleLine is one x-ndjson line of bundle work: exactly one of its fields.
type bundleLine struct {
	Progress *host.Progress `json:"progress,omitempty"`
	Bundle   *host.Bundle   `json:"bundle,omitempty"`
	Error    *host.Error    `json:"error,omitempty"`
}

// checkpointNumber reads a checkpoint's number from a path or a query.
func checkpointNumber(name, text string) (int, error) {
	var n int
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < 0 || fmt.Sprint(n) != text {
		return 0, host.Errorf(host.CodeInvalid, "give a number of the VM's history", "%s is %q, not a checkpoint's number", name, text)
	}
	return n, nil
}
