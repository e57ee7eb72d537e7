package qemu

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// console copies what the guest's serial port says to a file, and keeps the end of it to say why a guest ended.
// It always reads on, whatever becomes of the file: a guest must not wait for our disk.
type console struct {
	conn  *net.UnixConn
	file  *os.File // nil: kept nowhere
	made  bool     // the file wasn't there before
	said  tail
	ended chan struct{}
}

// openConsole takes conn over only when it succeeds.
func openConsole(conn *net.UnixConn, path string, log *slog.Logger) (*console, error) {
	c := &console{conn: conn, ended: make(chan struct{})}
	if path != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		_, err := os.Lstat(path)
		c.made = errors.Is(err, os.ErrNotExist)
		if c.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
	}
	go c.copy(log)
	return c, nil
}

func (c *console) copy(log *slog.Logger) {
	defer close(c.ended)
	buffer := make([]byte, 16<<10)
	told := false
	for {
		n, err := c.conn.Read(buffer)
		c.said.Write(buffer[:n])
		if c.file != nil && n > 0 {
			if _, err := c.file.Write(buffer[:n]); err != nil && !told {
				told = true
				log.Warn("the console can't be kept", "file", c.file.Name(), "err", err)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				log.Debug("console ended", "err", err)
			}
			return
		}
	}
}

// close waits for what the ended process still had to say, and closes the file. A start that failed (undo) leaves no file.
func (c *console) close(undo bool) {
	<-c.ended
	c.conn.Close()
	if c.file == nil {
		return
	}
	info, err := c.file.Stat()
	c.file.Close()
	if undo && c.made && err == nil && info.Size() == 0 {
		os.Remove(c.file.Name())
	}
}

// panicLine is the kernel's own word on why it stopped; "" if it gave none.
func (c *console) panicLine() string {
	return c.said.last(func(line string) bool {
		return strings.Contains(line, "Kernel panic - not syncing") && !strings.Contains(line, "end Kernel panic")
	})
}
