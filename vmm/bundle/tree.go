package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// finishTree adds to a trusted tree what every bundle has: the places where the agent mounts file systems before anything
// else, and the folder of hooks it runs after a fork.
func finishTree(dir string) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		{"dev", 0o755}, {"proc", 0o555}, {"sys", 0o555}, {"run", 0o755}, {"tmp", 0o777 | fs.ModeSticky},
		{"var/tmp", 0o777 | fs.ModeSticky}, {"work/project", 0o755}, {"etc/flash/hooks.d", 0o755},
	} {
		at := filepath.Join(dir, d.path)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(at, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// writeRootFiles writes files of a trusted tree, with exactly their modes.
func writeRootFiles(dir string, files []rootFile) error {
	for _, f := range files {
		at := filepath.Join(dir, f.path)
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(at, []byte(f.text), f.mode); err != nil {
			return err
		}
		if err := os.Chmod(at, f.mode); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}
