package store

import (
	"os"
	"path/filepath"
)

// removeEmptyLogs removes logs without a byte. Badger makes a log and then gives it its length; when the power goes between
// the two, a file of no length is left, which Badger takes for one it has just made itself, and refuses to open. Nothing
// was ever written to it. Precondition: the database isn't open.
func removeEmptyLogs(dir string) error {
	tables, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return err
	}
	values, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
	if err != nil {
		return err
	}
	for _, path := range append(tables, values...) {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
