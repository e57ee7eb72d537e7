package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// pseudoTerminal gives both ends of one.
func pseudoTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		without(t, "it needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		without(t, "it needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func resizeTo(t *testing.T, f *os.File, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
}

func TestTerminalIsRawDuringAnExecAndRestoredAfter(t *testing.T) {
	master, slave := pseudoTerminal(t)
	resizeTo(t, slave, 30, 100)
	before, err := term.GetState(int(slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	a := &app{stdin: slave, stdout: io.Discard, stderr: io.Discard, getenv: os.Getenv}
	err = a.converse(t.Context(), true, true, func(ctx context.Context, s guest.Streams, size guest.WindowSize) (host.ExecResult, error) {
		if size != (guest.WindowSize{Rows: 30, Cols: 100}) {
			t.Errorf("the size is %v", size)
		}
		// In raw mode ^C is a byte like any other, and comes at once.
		if _, err := master.Write([]byte{3}); err != nil {
			t.Error(err)
		}
		key := make([]byte, 1)
		if _, err := io.ReadFull(s.Stdin, key); err != nil || key[0] != 3 {
			t.Errorf("got the key %v, %v", key, err)
		}
		resizeTo(t, slave, 50, 200)
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // as the kernel does to a terminal's own group
			t.Error(err)
		}
		if size := <-s.Resize; size != (guest.WindowSize{Rows: 50, Cols: 200}) {
			t.Errorf("the new size is %v", size)
		}
		return host.ExecResult{ExitStatus: guest.ExitStatus{Code: 9}}, nil
	})
	if err != exitStatus(9) {
		t.Errorf("got %v", err)
	}
	after, err := term.GetState(int(slave.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal isn't as it was: %v", err)
	}
}

func TestThirdInterruptKillsACommandThatIgnoresThem(t *testing.T) {
	a := &app{stdin: os.Stdin, stdout: io.Discard, stderr: io.Discard, getenv: os.Getenv}
	err := a.converse(t.Context(), false, false, func(ctx context.Context, s guest.Streams, _ guest.WindowSize) (host.ExecResult, error) {
		for range impatience {
			if ctx.Err() != nil {
				t.Error("it gave up too early")
			}
			syscall.Kill(os.Getpid(), syscall.SIGINT)
			if name := <-s.Signals; name != "INT" {
				t.Errorf("the command got %q", name)
			}
		}
		<-ctx.Done()
		return host.ExecResult{}, ctx.Err()
	})
	if err != exitStatus(130) {
		t.Errorf("it ended with %v", err)
	}
}
