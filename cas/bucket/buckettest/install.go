package buckettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Tool is a program that is built from source, by name and version, through the Go module proxy.
type Tool struct {
	Package string // its main package
	Version string
}

// The S3 servers: the main one, and one from different code for a second opinion.
var (
	VersityGW = Tool{"github.com/versity/versitygw/cmd/versitygw", "v1.8.0"}
	Rclone    = Tool{"github.com/rclone/rclone", "v1.76.0"}
)

// Path is where the program is once it is installed: in the user's cache folder, by name and version.
func (t Tool) Path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "flash", "tools", filepath.Base(t.Package)+"-"+t.Version+exe()), nil
}

// Install builds the program unless it is there. That needs Go and the network, once, for some minutes; who comes second
// waits.
func (t Tool) Install(ctx context.Context) (path string, err error) {
	path, err = t.Path()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(folder, "lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // while we waited
		return path, nil
	}
	return path, t.build(ctx, folder, path)
}

// build makes the program in a folder of its own and moves it to path. Precondition: the lock is held, so that other such
// folders are killed builds'.
func (t Tool) build(ctx context.Context, folder, path string) error {
	killed, err := filepath.Glob(filepath.Join(folder, "building-*"))
	if err != nil {
		return err
	}
	for _, k := range killed {
		if err := os.RemoveAll(k); err != nil {
			return err
		}
	}
	bin, err := os.MkdirTemp(folder, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	install := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags=-s -w", t.Package+"@"+t.Version)
	install.Dir = bin // outside of any module
	install.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "GOBIN="+bin)
	if said, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s@%s: %w: %s", t.Package, t.Version, err, lastLine(said))
	}
	return os.Rename(filepath.Join(bin, filepath.Base(t.Package)+exe()), path)
}

func exe() string {
	if filepath.Separator == '\\' {
		return ".exe"
	}
	return ""
}

func lastLine(said []byte) string {
	text := strings.TrimSpace(string(said))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
