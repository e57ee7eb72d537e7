// Package guest is the host's side of the conversation with the agent inside a guest, and the protocol both speak.
//
// Terms: a session lasts from one HELLO to the next; each has a generation, greater than any before it. Frames of an
// older generation are dropped by both sides. An exec is a command in the guest, named by the host, with a cgroup of its
// own; its output is numbered by bytes so that it can be attached to again.
package guest

import (
	"context"
	"io"
	"net"
	"time"
)

// Protocol is the version both sides say in HELLO; another one is refused with a clear error.
const Protocol = 1

// Client talks to one guest. Safe for concurrent use.
type Client struct{}

// Connect sends HELLO with the generation until the agent acknowledges it, within ctx.
// The client owns conn from now on and closes it with Close.
func Connect(ctx context.Context, conn net.Conn, generation uint64) (*Client, Info, error) {
	panic("contract")
}

// Info is what the agent says of itself.
type Info struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	BootID   string `json:"boot_id"`
}

// Close ends the session and unblocks every call with ErrClosed. Execs in the guest go on.
func (c *Client) Close() error { panic("contract") }

// Quiesce waits until the channel is at rest and keeps it so – nothing is read or written – until the returned
// function is called. Output of running execs waits in the guest meanwhile.
func (c *Client) Quiesce(ctx context.Context) (release func(), err error) { panic("contract") }

// Freeze stops the workload: every exec's processes. The agent thaws by itself after limit, should the host die.
func (c *Client) Freeze(ctx context.Context, limit time.Duration) error { panic("contract") }

// Thaw lets the workload go on.
func (c *Client) Thaw(ctx context.Context) error { panic("contract") }

// Repair is what must be put right after a restore, before the workload runs again.
type Repair struct {
	Now        time.Time `json:"now"`        // wall clock to set; zero: leave. Sent as late as possible
	Seed       []byte    `json:"seed"`       // 64 bytes for the kernel's generator
	Generation string    `json:"generation"` // written to /run/flash/generation
	Hostname   string    `json:"hostname"`   // "": leave
	MAC        string    `json:"mac"`        // "": leave
	Hooks      bool      `json:"hooks"`      // run /etc/flash/hooks.d/* after the rest and before the thaw; true after fork and rewind
	Thaw       bool      `json:"thaw"`       // thaw when all has succeeded
}

// Repair does all or fails; on failure the workload stays frozen.
func (c *Client) Repair(ctx context.Context, r Repair) error { panic("contract") }

// ExecRequest is a command to run.
type ExecRequest struct {
	ID      string        `json:"id"` // chosen by the host, unique per VM; starting the same id twice starts once
	Argv    []string      `json:"argv"`
	Env     []string      `json:"env"`  // added to the guest's default environment
	Cwd     string        `json:"cwd"`  // "": the user's home, or /
	User    string        `json:"user"` // name or uid[:gid]; "": root
	TTY     bool          `json:"tty"`
	Rows    uint16        `json:"rows"`
	Cols    uint16        `json:"cols"`
	Stdin   bool          `json:"stdin"`   // false: /dev/null
	Timeout time.Duration `json:"timeout"` // 0: none; then the whole cgroup is killed
	Thaw    bool          `json:"thaw"`    // thaw the workload first: saves a round trip after a checkpoint
}

// Streams are the caller's ends of a command. Nil writers discard; a nil Stdin is empty.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan WindowSize // with TTY
	Signals        <-chan string     // "INT", "TERM", …: sent to the command's process group
}

// WindowSize is a terminal's, in characters.
type WindowSize struct{ Rows, Cols uint16 }

// ExitStatus is how a command ended.
type ExitStatus struct {
	Code     int    `json:"code"`   // 128+signal when killed by one
	Signal   string `json:"signal"` // "" or "KILL", …
	TimedOut bool   `json:"timed_out"`
}

// Exec starts a command, or attaches to it when the id is running or has ended not long ago, and copies until its own
// process has ended and its output has arrived. A cancelled ctx kills the command's cgroup when killOnCancel.
func (c *Client) Exec(ctx context.Context, r ExecRequest, s Streams) (ExitStatus, error) {
	panic("contract")
}

// AttachExec goes on with the output of a running or recently ended exec from what the agent still has.
func (c *Client) AttachExec(ctx context.Context, id string, s Streams) (ExitStatus, error) {
	panic("contract")
}

// ExecInfo is one exec the agent knows.
type ExecInfo struct {
	ID      string      `json:"id"`
	Argv    []string    `json:"argv"`
	Running bool        `json:"running"`
	Exit    *ExitStatus `json:"exit,omitempty"`
}

// Execs lists what the agent knows, oldest first.
func (c *Client) Execs(ctx context.Context) ([]ExecInfo, error) { panic("contract") }

// Kill kills an exec's whole cgroup.
func (c *Client) Kill(ctx context.Context, id string) error { panic("contract") }

// CopyIn unpacks a tar stream below dir in the guest, with owners, modes, times, links and xattrs. Paths can't leave dir.
func (c *Client) CopyIn(ctx context.Context, dir string, tar io.Reader) error { panic("contract") }

// CopyOut packs a file or folder of the guest as a tar stream, named relative to its parent.
func (c *Client) CopyOut(ctx context.Context, path string, tar io.Writer) error { panic("contract") }

// SyncFS flushes the guest's file systems.
func (c *Client) SyncFS(ctx context.Context) error { panic("contract") }

// Shutdown asks the guest to power off.
func (c *Client) Shutdown(ctx context.Context) error { panic("contract") }

// Stubs until branch guest lands.
var ErrClosed, ErrNoExec error

type AgentError struct{ Code, Message string }

func (e *AgentError) Error() string { return e.Message }
