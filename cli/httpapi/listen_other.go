//go:build !unix

package httpapi

import (
	"errors"
	"syscall"
)

// refused tells that a socket's file is there and no process listens on it: WSAECONNREFUSED, which package syscall
// doesn't name.
func refused(err error) bool { return errors.Is(err, syscall.Errno(10061)) }
