package httpapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"flash/vmm/host"
)

// proofTimeout bounds the dial that tells a dead daemon's socket from a live one's.
const proofTimeout = 2 * time.Second

// ListenUnix makes the socket at path, mode 0600, replacing one that nobody answers any more.
//
// The socket is made in a fresh folder of mode 0700, gets its mode there and is then renamed to path: at no instant can
// anybody else open it, and the process's umask is left alone. Two daemons that race for one path are kept apart by the
// store's lock, which the caller holds.
func ListenUnix(path string) (net.Listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), socketDirPrefix)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s (is the path longer than a socket's may be, about 100 bytes?): %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it would remove the name the socket no longer has
	made := filepath.Join(dir, "s")
	if err := os.Chmod(made, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	info, err := os.Lstat(made)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return &listener{l, path, info}, nil
}

// socketDirPrefix begins the name of the folder a socket is made in; it is short, for a socket's path must be.
const socketDirPrefix = ".s"

// SweepSockets removes the half-made sockets that a killed daemon has left beside path. Precondition: no other daemon
// makes one.
func SweepSockets(path string) error {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("half-made sockets: %w", err)
	}
	for _, e := range entries {
		if half, _ := filepath.Match(socketDirPrefix+"[0-9]*", e.Name()); half && e.IsDir() {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("half-made sockets: %w", err)
			}
		}
	}
	return nil
}

// removeDead removes a socket after a dial has proved that nobody answers. Anything but a socket is left alone.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("listen at %s: it exists and is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, proofTimeout)
	if err == nil {
		conn.Close()
		return host.Errorf(host.CodeStoreLocked, "use it, or end it with flash serve --stop", "another daemon answers at %s", path)
	}
	if !refused(err) {
		return fmt.Errorf("listen at %s: cannot tell whether a daemon still answers there: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("listen at %s: removing a dead daemon's socket: %w", path, err)
	}
	return nil
}

// listener removes its name when it closes, unless the name has become another's.
type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
