package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// command is a program that a build runs. It ends with the context, and everything it has started with it.
type command struct {
	name     string   // looked up in PATH and the folders of administrators' programs
	pkg      string   // Debian's package of it, for the error when it is missing
	args     []string //
	dir      string   // "": this process's
	env      []string // added to this process's
	ownMount bool     // run it where its mounts are its own and end with it
	stdin    io.Reader
	stdout   func(io.Reader) error // nil: run returns what was printed
}

// commandGrace is how long a child may take to clean up after a cancelled build before it is killed.
const commandGrace = 5 * time.Second

// run runs c and gives what it printed, or hands its output to stdout as it comes.
func (c command) run(ctx context.Context) ([]byte, error) {
	path, err := lookPath(c.name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s; install it with: apt-get install %s", ErrMissingTool, c.name, c.pkg)
	}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Dir = c.dir
	// Messages are read here, so they must be in one language; and nothing may wait for an answer.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	cmd.Env = append(cmd.Env, c.env...)
	prepareChild(cmd, c.ownMount)
	cmd.WaitDelay = 2 * commandGrace
	runtime.LockOSThread() // the kernel takes the end of the thread that started a child for the parent's
	defer runtime.UnlockOSThread()
	stderr := &tail{limit: 8 << 10}
	cmd.Stderr, cmd.Stdin = stderr, c.stdin
	var stdout bytes.Buffer
	if c.stdout == nil {
		cmd.Stdout = &stdout
		err = cmd.Run()
	} else {
		err = runPiped(cmd, c.stdout)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return stdout.Bytes(), &commandError{name: c.name, err: err, stderr: stderr.String()}
	}
	return stdout.Bytes(), nil
}

// runPiped runs cmd with its output going through consume. What consume leaves unread is thrown away, so that a reader
// that has seen enough doesn't make the child fail.
func runPiped(cmd *exec.Cmd, consume func(io.Reader) error) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	cerr := consume(out)
	if cerr == nil {
		_, cerr = io.Copy(io.Discard, out)
	} else {
		out.Close() // the child ends on a broken pipe
	}
	werr := cmd.Wait()
	if werr != nil && (cerr == nil || errors.Is(cerr, io.ErrUnexpectedEOF)) {
		return werr // the child's own trouble is the cause of ours
	}
	return cerr
}

// lookPath finds a program. A daemon's PATH may lack the folders where mkfs lives.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if err == nil {
			break
		}
		path, err = exec.LookPath(dir + name)
	}
	return path, err
}

// commandError carries what a child said before it failed.
type commandError struct {
	name   string
	err    error
	stderr string
}

func (e *commandError) Error() string {
	text := strings.TrimSpace(e.stderr)
	if text == "" {
		return fmt.Sprintf("%s: %v", e.name, e.err)
	}
	lines := strings.Split(text, "\n")
	return fmt.Sprintf("%s: %v: %s", e.name, e.err, strings.Join(lines[max(0, len(lines)-4):], "; "))
}

func (e *commandError) Unwrap() error { return e.err }

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - t.limit; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
