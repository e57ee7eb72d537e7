//go:build !unix

package dir

import (
	"errors"
	"io/fs"
	"syscall"
)

// Other systems' numbers aren't told apart here: what isn't absent or denied goes to the caller as it is, and a version is a
// size and a time.

func noLocks(error) bool            { return false }
func notAFolder(error) bool         { return false }
func readOnly(error) bool           { return false }
func stale(error) bool              { return false }
func mayPass(error) bool            { return false }
func fileNumber(fs.FileInfo) uint64 { return 0 }

// cannotSyncFolders: Windows opens folders for reading only, and then won't flush them.
func cannotSyncFolders(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno)
}
