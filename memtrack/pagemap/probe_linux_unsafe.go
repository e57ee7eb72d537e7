//go:build linux

package pagemap

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// The little of <linux/userfaultfd.h> that the probe needs.
const (
	ioctlUffdAPI      = 0xc018aa3f
	ioctlUffdRegister = 0xc020aa00
	uffdUserModeOnly  = 1
	uffdRegisterWP    = 1 << 1
	uffdWPFeatures    = 1<<0 | 1<<13 | 1<<15 // PAGEFAULT_FLAG_WP, WP_UNPOPULATED, WP_ASYNC
)

// protectAsync registers mem for asynchronous write protection as long as the descriptor is open.
func protectAsync(mem []byte) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return -1, fmt.Errorf("make a userfaultfd: %w", errno)
	}
	api := [3]uint64{0xaa, uffdWPFeatures, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, ioctlUffdAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		unix.Close(int(fd))
		return -1, fmt.Errorf("the kernel has no asynchronous write protection (Linux 6.7 has): %w", errno)
	}
	// SAFETY: mem is mapped, not heap; its address doesn't change, and the caller unmaps it after closing fd.
	reg := [4]uint64{uint64(uintptr(unsafe.Pointer(&mem[0]))), uint64(len(mem)), uffdRegisterWP, 0}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, ioctlUffdRegister, uintptr(unsafe.Pointer(&reg))); errno != 0 {
		unix.Close(int(fd))
		return -1, fmt.Errorf("register memory for write protection: %w", errno)
	}
	return int(fd), nil
}

// spanOf gives the span of mapped memory of this process.
func spanOf(pid int, mem []byte) memtrack.Span {
	start := uint64(uintptr(unsafe.Pointer(&mem[0])))
	return memtrack.Span{PID: pid, Start: start, End: start + uint64(len(mem))}
}
