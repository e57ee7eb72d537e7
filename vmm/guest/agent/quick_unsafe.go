//go:build linux

package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Quick system calls are made without telling Go's scheduler: they can't wait for anything but other calls as short. Right
// after a restore under emulation each takes milliseconds, because all of its code is translated for the first time; the
// scheduler would take that for waiting and hand its work to another thread, which costs more than the call itself.

// quickWrite writes at offset 0.
func quickWrite(fd int, text string) error {
	if text == "" {
		return nil
	}
	// SAFETY: the kernel reads len(text) bytes of the string, which is kept alive until it has.
	n, _, errno := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.StringData(text))), uintptr(len(text)), 0, 0, 0)
	runtime.KeepAlive(text)
	switch {
	case errno != 0:
		return errno
	case int(n) != len(text):
		return unix.ENOSPC
	}
	return nil
}

func quickTruncate(fd int, bytes int64) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_FTRUNCATE, uintptr(fd), uintptr(bytes), 0); errno != 0 {
		return errno
	}
	return nil
}

// quickIoctl gives a request a pointer to arg, or 0 when it is empty.
func quickIoctl(fd int, request uint, arg []byte) error {
	// SAFETY: arg is as long as the request reads or writes, says its caller, and is kept alive until it has.
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}

func quickSetClock(ts *unix.Timespec) error {
	// SAFETY: the kernel reads one timespec, which is kept alive until it has.
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(ts)), 0)
	runtime.KeepAlive(ts)
	if errno != 0 {
		return errno
	}
	return nil
}
