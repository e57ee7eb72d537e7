package local

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync: the bytes and the length, not the times.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
