package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// process is one that belongs to a home.
type process struct {
	pid     int
	machine bool // a QEMU; else the daemon
}

func (p process) String() string {
	if p.machine {
		return fmt.Sprintf("machine %d", p.pid)
	}
	return fmt.Sprintf("daemon %d", p.pid)
}

// processesOf finds a home's daemon and machines.
func processesOf(home string) []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	serve := []byte("\x00serve\x00--home\x00" + home + "\x00")
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // gone meanwhile
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		switch {
		case machineOf(dir, home):
			found = append(found, process{pid, true})
		case bytes.Contains(cmdline, serve):
			found = append(found, process{pid, false})
		}
	}
	return found
}

// killProcesses kills some of a home's processes, in the order given, then its daemon wherever one comes up, and waits until
// nothing of the home runs.
func killProcesses(home string, first []process) error {
	for _, p := range first {
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		left := processesOf(home)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after kill -9 of the daemon there still run %v", left)
		}
		// Machines end with their daemon; a daemon that a client started at that very instant is killed, too.
		for _, p := range left {
			if !p.machine {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// killMachine kills one machine of a home, if the number is still one's.
func killMachine(home string, pid int) error {
	if !machineOf(fmt.Sprintf("/proc/%d", pid), home) {
		return nil // it has ended by itself
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
