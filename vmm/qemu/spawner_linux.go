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
	refused  chan struct{} // closed: no more
	quit     chan struct{}
	ended    chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func()), refused: make(chan struct{}), quit: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: it must not be lent to others, one of whom might end it
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

// refuse makes every later start fail; what runs goes on.
func (s *spawner) refuse() { close(s.refused) }

// close ends the thread, and with it what is left of its children. Precondition: refuse was called.
func (s *spawner) close() {
	close(s.quit)
	<-s.ended
}

var errEngineClosed = errors.New("the engine was closed")

// RunVariable is the name under which a QEMU's environment tells Config.RunDir, by which those of a host are known.
const RunVariable = "FLASH_RUN"

// program is what a child runs.
type program struct {
	binary string
	args   []string
	files  []*os.File          // descriptors 3 and up; they stay the caller's
	user   *syscall.Credential // nil: ours
	run    string
	group  *cgroup // nil: ours; it ends with the process, or when there is none
}

// start runs a program.
func (s *spawner) start(p program) (_ *process, err error) {
	defer func() {
		if err != nil {
			p.group.remove()
		}
	}()
	said := new(tail)
	pidfd := -1
	cmd := exec.Command(p.binary, p.args...)
	cmd.Dir = "/" // no mount is kept busy
	cmd.Stderr, cmd.ExtraFiles = said, p.files
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C", RunVariable + "=" + p.run} // nothing of ours, least of all secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  unix.SIGKILL,
		Setsid:     true, // a ^C at the terminal is for us, not for the machines
		PidFD:      &pidfd,
		Credential: p.user,
	}
	p.group.place(cmd.SysProcAttr)
	cmd.WaitDelay = time.Second
	failed := make(chan error, 1)
	if hasEnded(s.refused) {
		return nil, errEngineClosed
	}
	select {
	case s.requests <- func() {
		err := renounce(p.user != nil)
		if err == nil {
			err = cmd.Start()
		}
		failed <- err
	}:
	case <-s.refused:
		return nil, errEngineClosed
	}
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.binary, err)
	}
	return adopt(cmd, pidfd, said, p.group)
}
