package qemu

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketPair gives our end of a stream and the end a child inherits. Neither has a name in any file system.
func socketPair(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair for the %s: %w", name, err)
	}
	theirs = os.NewFile(uintptr(pair[1]), name)
	mine := os.NewFile(uintptr(pair[0]), name)
	defer mine.Close() // FileConn keeps a copy
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("socket pair for the %s: %w", name, err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// rights is the control message that carries a descriptor.
func rights(f *os.File) []byte { return unix.UnixRights(int(f.Fd())) }
