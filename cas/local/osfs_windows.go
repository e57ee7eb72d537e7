package local

import (
	"os"

	"golang.org/x/sys/windows"
)

var (
	errWouldBlock error = windows.ERROR_LOCK_VIOLATION
	errQuota      error = windows.ERROR_DISK_FULL
)

func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
}

// SyncDir does nothing: NTFS journals its metadata, and Windows can't flush a folder.
func (OSFS) SyncDir(string) error { return nil }

// FreeBytes is what this user may still write.
func (OSFS) FreeBytes(dir string) (int64, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return 0, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return int64(free), nil
}
