//go:build unix

package cli

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeBytes is what an unprivileged process may still write at path.
func freeBytes(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}
