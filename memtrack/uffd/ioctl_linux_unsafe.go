//go:build linux

package uffd

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl passes arg, which the kernel may write to.
func ioctl(fd int, request uintptr, arg []byte) error {
	// SAFETY: arg outlives the call; the kernel keeps no reference to it.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&arg[0])))
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}

// wake lets the threads go on that wait for the page at address. ESRCH means that their process has ended.
func wake(fd int, address uint64) error {
	arg := [2]uint64{address, pageBytes}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlWake, uintptr(unsafe.Pointer(&arg)))
		switch errno {
		case 0, unix.ESRCH:
			return nil
		case unix.EAGAIN, unix.EINTR: // the mappings are changing
			runtime.Gosched()
		default:
			return errno
		}
	}
}

// newUserfaultfd makes one in this process.
func newUserfaultfd(features uint64) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	if err := ioctl(int(fd), ioctlAPI, encodeWords(apiVersion, features, 0)); err != nil {
		_ = unix.Close(int(fd))
		return -1, err
	}
	return int(fd), nil
}

// addressOf is where mapped (not heap) memory lies.
func addressOf(mapped []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mapped[0]))) }
