package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// scratchPrefix begins the name of every build's scratch folder. A folder is in use while its lock is held; one whose
// process died is removed by SweepScratch.
const scratchPrefix = "bundle-"

// openScratch makes a folder below dir. release removes it, is safe to call twice, and must be called.
func openScratch(dir string) (scratch string, release func() error, err error) {
	if dir == "" {
		dir = os.TempDir()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("scratch folder: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("scratch folder: %w", err)
	}
	if err := SweepScratch(dir); err != nil {
		return "", nil, err
	}
	scratch, err = os.MkdirTemp(dir, scratchPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("scratch folder: %w", err)
	}
	lock, err := lockScratch(scratch)
	if err != nil {
		os.Remove(scratch)
		return "", nil, fmt.Errorf("scratch folder %s: %w", scratch, err)
	}
	return scratch, func() error {
		err := removeScratch(scratch)
		lock.Close()
		return err
	}, nil
}

// SweepScratch removes what builds that were killed have left below dir, a Config.WorkDir. Every build does it first.
func SweepScratch(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	for _, e := range left {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		lock, err := lockScratch(path)
		if err != nil {
			continue // in use, or gone just now
		}
		err = removeScratch(path)
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeScratch removes a scratch folder. It doesn't walk into a file system that a child left mounted there: that could
// be this host's own /dev.
func removeScratch(dir string) error {
	if err := detachMounts(dir); err != nil {
		return fmt.Errorf("scratch folder %s is left behind: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("scratch folder is left behind: %w", err)
	}
	return nil
}

// explainNoSpace gives a full disk a name of its own.
func explainNoSpace(err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	var ce *commandError
	if errors.As(err, &ce) {
		full = full || strings.Contains(ce.stderr, "No space left on device")
	}
	if !full || errors.Is(err, ErrNoSpace) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoSpace, err)
}
