//go:build unix

package local

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	errWouldBlock error = syscall.EWOULDBLOCK
	errQuota      error = syscall.EDQUOT
)

func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// SyncDir is fsync of the folder.
func (OSFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// FreeBytes is what an unprivileged user may still write.
func (OSFS) FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
