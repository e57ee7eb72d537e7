// Package guest is the host's side of the conversation with the agent inside a guest, and the protocol both speak.
//
// # Terms
//
// A session lasts from one HELLO to the next; each has a generation, greater than any before it. Frames of another
// generation are dropped by both sides. An exec is a command in the guest, named by the host, with a cgroup of its
// own; its output is numbered by bytes so that it can be attached to again. A stream is one direction of bytes belonging
// to a request. The channel is whatever carries bytes between the two: a virtio serial port, or a pipe in tests.
//
// # What the channel does to us
//
// A guest is saved and restored at any byte. So half a frame may sit in the guest's decoder while a new host begins to
// speak, answers to questions of a former life may still arrive, and a successful write proves nothing. Therefore: frames
// can be found again in any stream of bytes (frame.go), a session begins only with an acknowledged HELLO, and a host
// that is about to save the guest first brings the channel to rest (Quiesce).
//
// # Both ends
//
// Client is the host's end. Server is the other one: it holds sessions, streams and the table of execs, and leaves what
// they mean to a Handler. The agent gives it one made of processes and cgroups, the fake engine one made of Go functions.
//
// # Invariants
//
//   - A frame's body never holds the marker: bytes of streams are cut inside it, JSON and texts can't contain it.
//   - Neither reading goroutine ever waits for a consumer, nor for a write: credit bounds what may arrive.
//   - Between HELD and RELEASE neither side writes, and the host doesn't read.
//   - Output of an exec arrives whole and in order, or the caller gets ErrOutputLost.
//
// # Lock order
//
// Server.mu → execution.mu → outStream.mu, inStream.mu → link.mu. link.mu is never held over a write.
package guest

import (
	"time"
)

// Protocol is the version both sides say in HELLO; another one is refused with a clear error.
const Protocol = 2

// Info is what the agent says of itself.
type Info struct {
	Protocol int
	Version  string
	BootID   string
}

// Repair is what must be put right after a restore, before the workload runs again.
type Repair struct {
	Now        time.Time // wall clock to set; zero: leave. Sent as late as possible
	Seed       []byte    // 64 bytes for the kernel's generator; required with Generation
	Generation string    // written to /run/flash/generation
	Hostname   string    // "": leave
	MAC        string    // "": leave
	Hooks      bool      // run /etc/flash/hooks.d/* after the rest and before the thaw; true after fork and rewind
	Thaw       bool      // thaw when all has succeeded
}

// ExecRequest is a command to run.
type ExecRequest struct {
	ID      string        `json:"id"` // chosen by the host, unique per VM; starting the same id twice starts once
	Argv    []string      `json:"argv"`
	Env     []string      `json:"env,omitempty"`  // added to the guest's default environment
	Cwd     string        `json:"cwd,omitempty"`  // "": the user's home, or /
	User    string        `json:"user,omitempty"` // name or uid[:gid]; "": root
	TTY     bool          `json:"tty,omitempty"`
	Rows    uint16        `json:"rows,omitempty"`
	Cols    uint16        `json:"cols,omitempty"`
	Stdin   bool          `json:"stdin,omitempty"`   // false: /dev/null
	Timeout time.Duration `json:"timeout,omitempty"` // 0: none; then the whole cgroup is killed
	Thaw    bool          `json:"thaw,omitempty"`    // thaw the workload first: saves a round trip after a checkpoint

	// KeepOnCancel leaves the command running when the caller's context is cancelled or its writers fail; else its whole
	// cgroup is killed. It doesn't travel.
	KeepOnCancel bool `json:"-"`
}

// WindowSize is a terminal's, in characters.
type WindowSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ExitStatus is how a command ended.
type ExitStatus struct {
	Code     int    `json:"code"`   // 128+signal when killed by one
	Signal   string `json:"signal"` // "" or "KILL", …
	TimedOut bool   `json:"timed_out"`
}

// ExecInfo is one exec the agent knows.
type ExecInfo struct {
	ID      string      `json:"id"`
	Argv    []string    `json:"argv"`
	Running bool        `json:"running"`
	Exit    *ExitStatus `json:"exit,omitempty"`
}
