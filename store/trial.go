package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	badger "github.com/dgraph-io/badger/v4"
)

// A damaged database can be the death of the process that opens it: Badger panics in goroutines of its own, where
// nothing recovers, and its mapped files can raise SIGBUS. A daemon that dies so dies again at every start, and tells
// nobody why. So while the database is open a marker lies beside it; where Open finds one, the last end was no Close,
// and another process opens the database first. If that dies, Open says so and leaves everything as it is.

// markerName is the file that lies beside a database that is open, or was when its process died.
const markerName = "flash.open"

// ErrDatabase: the database can't be opened. It is an ErrCorrupt.
var ErrDatabase error = databaseError{}

type databaseError struct{}

func (databaseError) Error() string        { return "the database is damaged" }
func (databaseError) Is(target error) bool { return target == ErrCorrupt }

// markOpen places the marker, and tries the database in another process when there was one.
// Precondition: the folder is locked.
func (s *Store) markOpen(ctx context.Context, trial func(context.Context, string) error) error {
	path := filepath.Join(s.dir, markerName)
	_, err := os.Lstat(path)
	switch {
	case err == nil && trial != nil:
		return trial(ctx, s.dir)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	// Not synced: what a power cut leaves without the marker, Badger has synced itself.
	return f.Close()
}

// unmark takes the marker away. Precondition: the database is closed.
func (s *Store) unmark() error { return os.Remove(filepath.Join(s.dir, markerName)) }

const (
	lockPatience = 5 * time.Second
	lockPoll     = 20 * time.Millisecond
)

// TryOpen opens and closes the database in dir: the work of the process that Config.Trial starts. An error of the
// database is none here, for Open gets the same one; all that counts is whether the process survives.
// Precondition: the process that waits for this one has locked dir.
func TryOpen(dir string) {
	for began := time.Now(); ; time.Sleep(lockPoll) {
		db, err := badger.Open(options(dir, nil))
		if err == nil {
			db.Close()
			return
		}
		// The trial of a daemon that was killed dies with it, but perhaps not before the next one has begun. Badger
		// has only words for it.
		if !strings.Contains(err.Error(), "Cannot acquire directory lock") || time.Since(began) > lockPatience {
			return
		}
	}
}

// DiedTrying is the error of a trial whose process died, with its last words.
func DiedTrying(words string) error {
	return fmt.Errorf("a process that only opened it was killed by it (%s): %w", words, ErrDatabase)
}

// others are what keeps a database from opening that isn't damage. Badger passes on the system's words, not its errors.
var others = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EWOULDBLOCK}

// blame makes an ErrDatabase of what Badger refuses to open with, unless the system is to blame.
func blame(err error) error {
	if errors.Is(err, ErrDatabase) {
		return err
	}
	for _, errno := range others {
		if strings.Contains(err.Error(), errno.Error()) {
			return fmt.Errorf("open the database: %w: %w", err, errno)
		}
	}
	return fmt.Errorf("%w: %w", err, ErrDatabase)
}
