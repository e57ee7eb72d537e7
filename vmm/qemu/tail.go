package qemu

import (
	"bytes"
	"strings"
	"sync"
)

// tailBytes is what is kept of what a process said last: the reason why it ended is at the end.
const tailBytes = 8 << 10

// tail is a Writer that keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - tailBytes; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

// lastLine is the last line that isn't empty, without control characters.
func (t *tail) lastLine() string { return t.last(func(string) bool { return true }) }

// last is the last non-empty line that wanted accepts; "" if there is none.
func (t *tail) last(wanted func(string) bool) string {
	t.mu.Lock()
	lines := bytes.Split(t.data, []byte("\n"))
	t.mu.Unlock()
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(strings.Map(printable, string(lines[i])))
		if line != "" && wanted(line) {
			return line
		}
	}
	return ""
}

func printable(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f {
		return -1
	}
	return r
}
