package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	portName    = "flash.agent"
	portLimit   = 20 * time.Second // for the port to appear after the modules have been loaded
	portChunk   = 32 << 10         // what the driver takes at once
	retryFirst  = 100 * time.Millisecond
	retryLongst = 5 * time.Second
)

// port is a virtio serial port as a stream that never ends. Without a host at the other end reads wait and writes wait.
//
// The runtime's poller watches it edge-triggered. That matters: POLLHUP is level and stays while no host is connected, so
// anything that polls by level spins. A guest restored while the host was connected sees no edge at all; its reader is
// woken by the bytes of the HELLO, and a writer that waits looks again by itself, ever more rarely.
type port struct {
	file *os.File
	raw  syscall.RawConn
}

// openPort waits for the port with this name and opens it.
func openPort(name string) (*port, error) {
	deadline := time.Now().Add(portLimit)
	for {
		path, err := findPort(name)
		if err == nil {
			return newPort(path)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find the serial port %s: %w", name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func findPort(name string) (string, error) {
	dirs, err := filepath.Glob("/sys/class/virtio-ports/*")
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "name"))
		if err == nil && strings.TrimSpace(string(b)) == name {
			path := "/dev/" + filepath.Base(dir)
			_, err := os.Stat(path)
			return path, err
		}
	}
	return "", fmt.Errorf("none of the %d virtio ports has this name", len(dirs))
}

func newPort(path string) (*port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path) // non-blocking, so the poller takes it
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &port{file: f, raw: raw}, nil
}

func (p *port) Read(b []byte) (n int, err error) {
	rerr := p.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), b)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN || err == nil && n == 0: // nothing there, nobody there
				return false
			}
			return true
		}
	})
	if rerr != nil {
		err = rerr
	}
	return max(n, 0), err
}

func (p *port) Write(b []byte) (written int, err error) {
	retry := retryFirst
	limited := false
	for written < len(b) {
		werr := p.raw.Write(func(fd uintptr) bool {
			var n int
			n, err = unix.Write(int(fd), b[written:min(len(b), written+portChunk)])
			if err == unix.EAGAIN {
				if limited {
					return false
				}
				return true // set a limit first
			}
			if err == nil {
				written += n
			}
			return true
		})
		switch {
		case errors.Is(werr, os.ErrDeadlineExceeded):
			retry = min(2*retry, retryLongst)
			limited = false
			p.file.SetWriteDeadline(time.Time{})
		case werr != nil:
			return written, werr
		case err == unix.EAGAIN:
			limited = true
			p.file.SetWriteDeadline(time.Now().Add(retry))
		case err == unix.EINTR:
		case err != nil:
			return written, err
		case limited:
			limited = false
			retry = retryFirst
			p.file.SetWriteDeadline(time.Time{})
		}
	}
	return written, nil
}

func (p *port) Close() error { return p.file.Close() }
