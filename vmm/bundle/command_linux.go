package bundle

import (
	"os/exec"
	"syscall"
	"time"
)

// prepareChild puts the child into a process group of its own, which is asked to end and then killed, so that the
// children of mmdebstrap don't outlive a cancelled build.
func prepareChild(cmd *exec.Cmd, ownMount bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,
		Pdeathsig: syscall.SIGTERM, // when this process is killed; mmdebstrap then ends its own children
	}
	if ownMount {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		err := syscall.Kill(group, syscall.SIGTERM)
		// The group's id stays taken while any member lives, and ESRCH is the answer when none does.
		time.AfterFunc(commandGrace, func() { syscall.Kill(group, syscall.SIGKILL) })
		return err
	}
}
