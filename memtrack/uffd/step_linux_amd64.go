package uffd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxRestarts = 100 // of one system call that signals interrupt
	maxSteps    = 100 // that end in something else than the step's trap

	// Results between the kernel and the return to the program: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
	firstRestart, lastRestart = 512, 516
)

var syscallInstruction = []byte{0x0f, 0x05}

// call single-steps one syscall instruction with registers of our choice.
func (t *tracee) call(number uintptr, args ...uint64) (uint64, error) {
	for range maxRestarts {
		r := t.saved
		r.Rip, r.Rax = t.insn, uint64(number)
		r.Orig_rax = ^uint64(0) // not in a system call: nothing to restart
		for i, slot := range []*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
			if i < len(args) {
				*slot = args[i]
			}
		}
		if err := unix.PtraceSetRegs(t.pid, &r); err != nil {
			return 0, fmt.Errorf("set registers: %w", err)
		}
		if err := t.step(); err != nil {
			return 0, err
		}
		if err := unix.PtraceGetRegs(t.pid, &r); err != nil {
			return 0, fmt.Errorf("read registers: %w", err)
		}
		if want := t.insn + uint64(len(syscallInstruction)); r.Rip != want {
			return 0, fmt.Errorf("system call %d stopped at %x, want %x", number, r.Rip, want)
		}
		code := -int64(r.Rax)
		switch {
		case code == int64(unix.EINTR), code >= firstRestart && code <= lastRestart:
			continue
		case code > 0 && code < 4096:
			return 0, unix.Errno(code)
		}
		return r.Rax, nil
	}
	return 0, fmt.Errorf("system call %d was interrupted %d times: %w", number, maxRestarts, unix.EINTR)
}

// step runs one instruction and waits for its trap. Other stops, such as those of job control, can come before; the trap is
// then still pending or the instruction still to be run, and one more step brings it.
func (t *tracee) step() error {
	for range maxSteps {
		if err := unix.PtraceSingleStep(t.pid); err != nil {
			return fmt.Errorf("step: %w", err)
		}
		if err := t.waitStop(); err != nil {
			return err
		}
		signal, code, err := getSignal(t.pid)
		switch {
		case err != nil: // a group stop has no signal
		case signal == unix.SIGTRAP && code>>8 == 0:
			return nil
		case signal == unix.SIGSEGV, signal == unix.SIGILL, signal == unix.SIGBUS:
			return fmt.Errorf("step: the process got %v", signal)
		case signal != unix.SIGTRAP:
			t.held = int(signal)
		}
	}
	return fmt.Errorf("%d steps brought no trap", maxSteps)
}

// waitStop waits until the thread is stopped. It asks ptrace, not wait(2): a wait would reap a process that ends, which is
// its parent's business.
func (t *tracee) waitStop() error {
	var r unix.PtraceRegs
	for tries := 0; ; tries++ {
		err := unix.PtraceGetRegs(t.pid, &r)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("wait for process %d to stop: %w", t.pid, err)
		}
		if tries < 200 {
			yieldProcessor()
			continue
		}
		if ended(t.pid) {
			return fmt.Errorf("process %d has ended: %w", t.pid, unix.ESRCH)
		}
		if err := t.ctx.Err(); err != nil {
			return fmt.Errorf("wait for process %d to stop: %w", t.pid, err)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// ended tells whether a process is gone or a zombie.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) == 0 || fields[0][0] == 'Z' || fields[0][0] == 'X'
}

// findInstruction looks where the thread last entered the kernel, then in the vdso.
func (t *tracee) findInstruction() (uint64, error) {
	var at [2]byte
	before := t.saved.Rip - uint64(len(at))
	if _, err := t.mem.ReadAt(at[:], int64(before)); err == nil && bytes.Equal(at[:], syscallInstruction) {
		return before, nil
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		var low, high uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil || high < low || high-low > 1<<20 {
			return 0, fmt.Errorf("read /proc/%d/maps: line %q", t.pid, strings.TrimSpace(line))
		}
		code := make([]byte, high-low)
		if _, err := t.mem.ReadAt(code, int64(low)); err != nil {
			return 0, fmt.Errorf("read the vdso of process %d: %w", t.pid, err)
		}
		if i := bytes.Index(code, syscallInstruction); i >= 0 {
			return low + uint64(i), nil
		}
	}
	return 0, fmt.Errorf("process %d has no system call instruction where we look for one", t.pid)
}
