//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const minSeedBytes = 32 // the generator's own key

// reseed credits the seed to the kernel's generator and makes it use it at once. Adding alone isn't enough: two restores of
// one checkpoint that only added went on to give equal numbers for a while.
func reseed(seed []byte) error {
	if len(seed) < minSeedBytes {
		return fmt.Errorf("a seed of %d bytes is too short to reseed the kernel's generator", len(seed))
	}
	fd, err := unix.Open("/dev/urandom", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("reseed the kernel's generator: %w", err)
	}
	defer unix.Close(fd)
	// struct rand_pool_info { int entropy_count /* bits */; int buf_size /* bytes */; __u32 buf[] }
	info := make([]byte, 8+(len(seed)+3)/4*4)
	binary.NativeEndian.PutUint32(info, uint32(8*len(seed)))
	binary.NativeEndian.PutUint32(info[4:], uint32(len(seed)))
	copy(info[8:], seed)
	// SAFETY: info holds the header and buf_size bytes, and is kept alive until the kernel has copied it.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0])))
	runtime.KeepAlive(info)
	clear(info)
	if errno != 0 {
		return fmt.Errorf("reseed the kernel's generator: add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("reseed the kernel's generator: use the entropy: %w", errno)
	}
	return nil
}
