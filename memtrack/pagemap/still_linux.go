package pagemap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stillLimit bounds how long a process may take to stand still. Seen: 0.1 ms; a thread that the kernel is busy for takes longer.
const stillLimit = 5 * time.Second

// standStill stops all threads of a process and gives what lets them go on.
//
// Soft-dirty bits are read and then cleared, in two steps. A page written for the first time between them would be in
// neither this cut nor the next. A paused machine doesn't write, says the precondition of a cut; but its process has threads
// that may: input for the guest's console, a disk request that ends late. So nobody there runs between the two: a stop takes
// effect only outside of system calls, when what the kernel does for a thread is done, and virtual CPUs are stopped threads.
//
// A process that stands still already is left so, and this process can't be stopped by itself.
func standStill(pid int) (goOn func(), err error) {
	if pid == os.Getpid() {
		return func() {}, nil
	}
	if still, err := standsStill(pid); err != nil || still {
		return func() {}, err
	}
	process, err := unix.PidfdOpen(pid, 0) // its number may be given to another before it is let go
	if err != nil {
		return nil, fmt.Errorf("stop process %d: %w", pid, err)
	}
	goOn = func() {
		_ = unix.PidfdSendSignal(process, unix.SIGCONT, nil, 0) // fails only for a process that has ended
		_ = unix.Close(process)
	}
	if err := unix.PidfdSendSignal(process, unix.SIGSTOP, nil, 0); err != nil {
		goOn()
		return nil, fmt.Errorf("stop process %d: %w", pid, err)
	}
	for deadline, wait := time.Now().Add(stillLimit), 20*time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		still, err := standsStill(pid)
		if err == nil && !still && time.Now().After(deadline) {
			err = fmt.Errorf("stop process %d: a thread still runs after %v", pid, stillLimit)
		}
		if err != nil {
			goOn()
			return nil, err
		}
		if still {
			return goOn, nil
		}
		time.Sleep(wait)
	}
}

// standsStill tells whether every thread of a process is stopped.
func standsStill(pid int) (bool, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, fmt.Errorf("stop process %d: %w", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // ended meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("stop process %d: %w", pid, err)
		}
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(state) == 0 || !bytes.ContainsAny(state[:1], "TtZX") { // stopped, or dead
			return false, nil
		}
	}
	return true, nil
}
