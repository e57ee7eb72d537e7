package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts every child from one thread that lives until it is closed, because PR_SET_PDEATHSIG follows the thread.
type spawner struct {
	requests chan func()
	quit     chan struct{}
	ended    chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and with it what is left of its children
		for {
			select {
			case start := <-s.requests:
				start()
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

func (s *spawner) close() {
	close(s.quit)
	<-s.ended
}

var errEngineClosed = errors.New("the engine was closed")

// start runs a program with files as descriptors 3 and up. The files stay the caller's.
func (s *spawner) start(binary, dir string, args []string, files []*os.File) (*process, error) {
	said := new(tail)
	pidfd := -1
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = dir, said, files
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"} // nothing of ours, least of all secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: unix.SIGKILL,
		Setsid:    true, // a ^C at the terminal is for us, not for the machines
		PidFD:     &pidfd,
	}
	cmd.WaitDelay = time.Second
	failed := make(chan error, 1)
	select {
	case s.requests <- func() { failed <- cmd.Start() }:
	case <-s.quit:
		return nil, errEngineClosed
	}
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return adopt(cmd, pidfd, said)
}
