package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

const (
	consoleMaxBytes  = 16 << 20 // a longer console loses its beginning
	consoleKeepBytes = 1 << 20  // of which this much stays
	consoleInterval  = time.Minute
)

// trimConsole bounds a console. The engine appends to the file while it is cut short; what is written in that moment may
// be lost, which a log can bear and a full disk can't.
func trimConsole(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() <= consoleMaxBytes {
		return err
	}
	last := make([]byte, consoleKeepBytes)
	n, err := f.ReadAt(last, st.Size()-consoleKeepBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("console: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("console: %w", err)
	}
	_, err = fmt.Fprintf(f, "[flash: %d bytes of console dropped]\n%s", st.Size()-int64(n), last[:n])
	return err
}

// lastLine gives the last line of a console, for errors.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 4096 {
		f.Seek(-4096, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
