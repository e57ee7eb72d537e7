//go:build linux && amd64

package uffd

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ptraceGetSigmask = 0x420a
	ptraceSetSigmask = 0x420b
	sigsetBytes      = 8

	allButTrap = ^uint64(1 << (unix.SIGTRAP - 1)) // a step ends in SIGTRAP
)

// The addresses below are of variables that outlive the call; the kernel keeps no reference to them.

func ptrace(request, pid int, addr, data uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), addr, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func getSignalMask(pid int) (mask uint64, err error) {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetSigmask, uintptr(pid), sigsetBytes, uintptr(unsafe.Pointer(&mask)), 0, 0); errno != 0 {
		return 0, errno
	}
	return mask, nil
}

func setSignalMask(pid int, mask uint64) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceSetSigmask, uintptr(pid), sigsetBytes, uintptr(unsafe.Pointer(&mask)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// getSignal says for which signal a thread is stopped, and its code. EINVAL: for none, it is a group stop.
func getSignal(pid int) (unix.Signal, int32, error) {
	var info unix.Siginfo
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return 0, 0, errno
	}
	return unix.Signal(info.Signo), info.Code, nil
}

func detach(pid, signal int) error { return ptrace(unix.PTRACE_DETACH, pid, 0, uintptr(signal)) }

func yieldProcessor() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
