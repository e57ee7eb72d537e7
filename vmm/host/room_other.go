//go:build !linux

package host

import "os"

// takeRoom writes: elsewhere there is no one call for it.
func takeRoom(f *os.File, bytes int) error { return writeRoom(f, bytes) }
