package guest

import (
	"context"
	"io"
	"time"
)

// Handler is what a Server's requests mean. Its methods are called from several goroutines. Errors travel as
// *AgentError; others get CodeFailed.
type Handler interface {
	// Session is called when a session begins, with random bytes from the host, before any of its requests.
	Session(seed []byte)
	// Start starts a command, after a thaw if r says so. Everything that can be known before it runs is an error here.
	Start(r ExecRequest, o Outputs) (Process, error)
	// Kill kills what is left of an exec whose Process the server has forgotten. ErrNoExec when there is nothing.
	Kill(ctx context.Context, id string) error
	// Freeze stops the workload and lets it go on by itself after limit.
	Freeze(ctx context.Context, limit time.Duration) error
	Thaw(ctx context.Context) error
	// Repair does everything r says; received is when r arrived.
	Repair(ctx context.Context, r Repair, received time.Time) error
	// CopyIn unpacks a tar stream. The server reads what it leaves.
	CopyIn(ctx context.Context, dir string, tar io.Reader) error
	CopyOut(ctx context.Context, path string, tar io.Writer) error
	SyncFS(ctx context.Context) error
	// Shutdown prepares; now is called after the answer has been sent.
	Shutdown(ctx context.Context) (now func(), err error)
}

// Outputs are a starting command's streams. Stdin is nil for /dev/null, else also an io.WriterTo; Stderr is unused with a terminal. What is written
// after the Process's Wait has returned is discarded.
type Outputs struct {
	Stdin          io.Reader
	Stdout, Stderr *Output
}

// Output collects a command's output, in order, until the host has it. Writing waits while it is full.
type Output = outStream

// Process is a started command.
type Process interface {
	// Wait waits until the command's own process has ended and what was written until then is in Outputs.
	Wait() ExitStatus
	// Signal sends a signal by name ("INT") to the process group.
	Signal(name string) error
	Resize(w WindowSize) error
	// Kill kills the process and everything that came of it, and waits until it is gone. Also after Wait.
	Kill(ctx context.Context) error
}
