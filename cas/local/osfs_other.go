//go:build !linux

package local

import "os"

// syncData is a whole fsync: this system has no fdatasync that Go knows. On macOS Go asks for F_FULLFSYNC.
func syncData(f *os.File) error { return f.Sync() }
