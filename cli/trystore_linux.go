package cli

import (
	"os/exec"
	"syscall"
)

// dieWithUs has a child end with this process, however that dies.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
