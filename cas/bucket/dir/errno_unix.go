//go:build unix

package dir

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func isAny(err error, errnos ...unix.Errno) bool {
	for _, e := range errnos {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// noLocks: the file system has no locks. NFS says ENOLCK when its lock service isn't there.
func noLocks(err error) bool {
	return isAny(err, unix.ENOLCK, unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS)
}

func notAFolder(err error) bool { return isAny(err, unix.ENOTDIR) }

func readOnly(err error) bool { return isAny(err, unix.EROFS) }

// stale: another host replaced or removed the open file.
func stale(err error) bool { return isAny(err, unix.ESTALE) }

// mayPass: the disk or its server doesn't answer now.
func mayPass(err error) bool {
	return isAny(err, unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENODEV, unix.ENXIO, unix.ENOTCONN)
}

func cannotSyncFolders(err error) bool { return isAny(err, unix.EINVAL, unix.ENOTSUP) }

func fileNumber(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
