package host

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// takeRoom takes room in a file's file system, without writing where that can be: it is asked for every few seconds while a
// command runs.
func takeRoom(f *os.File, bytes int) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, int64(bytes))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeRoom(f, bytes)
	}
	return err
}
