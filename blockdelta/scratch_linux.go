package blockdelta

import (
	"os"
	"syscall"
)

// From linux/falloc.h: package syscall has the call but not its modes.
const (
	fallocKeepSize  = 0x1
	fallocPunchHole = 0x2
)

// puncher gives a function that punches holes into f. A file system that can't (EOPNOTSUPP), or fails to, keeps the
// room; the slots are used again all the same, so the only loss is space until Close.
func puncher(f *os.File) func(off, length int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return func(int64, int64) {}
	}
	return func(off, length int64) {
		_ = conn.Control(func(fd uintptr) { // keeps f open meanwhile
			_ = syscall.Fallocate(int(fd), fallocPunchHole|fallocKeepSize, off, length)
		})
	}
}
