//go:build unix

package cli

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

var errLocked = errors.New("another process has the lock")

func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return errLocked
	}
	return err
}

// detach gives the daemon its own session: the terminal's ^C and hang-up aren't meant for it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// endSignals are the ones that end a daemon in order.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
