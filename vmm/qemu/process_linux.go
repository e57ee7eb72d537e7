package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"flash/vmm"

	"golang.org/x/sys/unix"
)

// process is one child. It ends in kill or by itself; then ended is closed, and it stays a zombie until reap, so that
// its number can't be reused while its memory is still being let go.
//
//	running ──kill, or by itself──▶ ended ──reap──▶ gone
type process struct {
	id     vmm.Process
	cmd    *exec.Cmd
	said   *tail // its standard error
	pidfd  *os.File
	group  *cgroup // nil: none of its own
	ended  chan struct{}
	reaped func() error
}

// adopt takes over a child that was just started with PidFD set to pidfd.
func adopt(cmd *exec.Cmd, pidfd int, said *tail, group *cgroup) (*process, error) {
	p := &process{cmd: cmd, said: said, group: group, ended: make(chan struct{})}
	p.reaped = sync.OnceValue(p.wait)
	abandon := func(err error) (*process, error) {
		cmd.Process.Kill() // our child, not yet reaped: its number is its own
		status := cmd.Wait()
		if line := said.lastLine(); line != "" { // it ended at once, and said why
			err = fmt.Errorf("%w: its last words: %q", err, line)
		}
		return nil, errors.Join(err, status)
	}
	if pidfd < 0 {
		return abandon(fmt.Errorf("this kernel gives no pidfd (Linux 5.4): %w", vmm.ErrUnsupported))
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return abandon(fmt.Errorf("pidfd: %w", err))
	}
	p.pidfd = os.NewFile(uintptr(pidfd), "pidfd") // non-blocking: the runtime's poller waits, not a thread
	var err error
	if p.id, err = identifyChild(cmd.Process.Pid, cmd.Path); err != nil {
		p.pidfd.Close()
		return abandon(fmt.Errorf("%w: %s, which was just started: %v", vmm.ErrGone, cmd.Path, err))
	}
	go p.notice()
	return p, nil
}

// notice closes ended when the process has become a zombie. It must not wait(2): see the package comment on threads.
func (p *process) notice() {
	defer close(p.ended)
	conn, err := p.pidfd.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return err == nil && n > 0
		})
	}
	if err == nil {
		return
	}
	// The poller refused; look now and then instead.
	for {
		fields, err := statFields(p.id.PID)
		if err != nil || fields[0] == "Z" || fields[0] == "X" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// kill ends the process if it is still the one that was started. Killing twice, or what has ended, is harmless.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	if isStill(p.id) {
		p.cmd.Process.Kill()
	}
}

// reap frees the number of a process that has ended and says how it did; nil for exit status 0. Precondition: ended is closed.
func (p *process) reap() error { return p.reaped() }

func (p *process) wait() error {
	defer p.pidfd.Close()
	err := p.cmd.Wait()
	p.group.remove()
	if errors.Is(err, syscall.ECHILD) {
		return nil // reaped by the tracer it died under
	}
	return err
}

// end kills, waits and reaps.
func (p *process) end() {
	p.kill()
	<-p.ended
	p.reap()
}
