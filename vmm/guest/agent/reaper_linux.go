package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper waits for all children, those we started and those that process 1 inherits. Nobody else calls wait.
type reaper struct {
	inherits bool // we are process 1

	mu   sync.Mutex                      // held while a child is started, so that it can't end unknown; guards the rest
	kids map[int]chan syscall.WaitStatus // each gets one status
}

func newReaper(inherits bool) *reaper {
	r := &reaper{inherits: inherits, kids: map[int]chan syscall.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r
}

// start starts a child and gives the channel its status will come on.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (pid int, ended <-chan syscall.WaitStatus, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err = syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	r.kids[pid] = c
	return pid, c, nil
}

// signal sends a signal to a child's process group unless the child has been reaped: its number may be another's by then.
func (r *reaper) signal(pid int, s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kids[pid] == nil {
		return nil
	}
	if err := unix.Kill(-pid, s); err != unix.ESRCH {
		return err
	}
	return unix.Kill(pid, s)
}

// reap collects every child that has ended. Only process 1 asks for any child: elsewhere there are no others.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inherits {
		for r.collect(-1) {
		}
		return
	}
	for pid := range r.kids {
		r.collect(pid)
	}
}

// collect waits for one child if it has ended, and tells whether it had. mu is held.
func (r *reaper) collect(pid int) bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return false
		}
		if c := r.kids[pid]; c != nil {
			delete(r.kids, pid)
			c <- status
		}
		return true
	}
}
