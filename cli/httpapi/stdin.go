package httpapi

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// stdinBuffer is the server's end of a command's stdin. What the client sends is put without waiting, so that the frames
// behind it are seen; what the command takes is acknowledged.
type stdinBuffer struct {
	ack *frameWriter

	mu     sync.Mutex // guards the rest; not held while acknowledging
	ready  sync.Cond  // data, eof or err changed
	data   []byte
	unsent int // bytes taken but not acknowledged yet
	eof    bool
	err    error
}

func newStdinBuffer(ack *frameWriter) *stdinBuffer {
	b := &stdinBuffer{ack: ack}
	b.ready.L = &b.mu
	return b
}

// put adds a stdin frame's payload and keeps none of it.
func (b *stdinBuffer) put(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.eof:
		return fmt.Errorf("stdin after its end: %w", errFrame)
	case len(p) == 0:
		b.eof = true
	case len(b.data)+b.unsent+len(p) > stdinWindow:
		return fmt.Errorf("more than %d bytes of stdin unacknowledged: %w", stdinWindow, errFrame)
	default:
		b.data = append(b.data, p...)
	}
	b.ready.Broadcast()
	return nil
}

// fail ends every Read with err, once the data has been read.
func (b *stdinBuffer) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.ready.Broadcast()
}

// Read waits for data. It acknowledges in halves of the window: few frames, and never an empty window while the
// command reads.
func (b *stdinBuffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.data) == 0 && !b.eof && b.err == nil {
		b.ready.Wait()
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	if n == 0 && len(p) > 0 {
		defer b.mu.Unlock()
		if b.eof {
			return 0, io.EOF
		}
		return 0, b.err
	}
	b.unsent += n
	taken := 0
	if b.unsent >= stdinWindow/2 {
		taken, b.unsent = b.unsent, 0
	}
	b.mu.Unlock()
	if taken > 0 {
		if err := b.ack.write(frameTaken, binary.BigEndian.AppendUint32(nil, uint32(taken))); err != nil {
			return n, err
		}
	}
	return n, nil
}

// credit is the client's end: how much more stdin may be sent.
type credit struct {
	mu   sync.Mutex // guards the rest
	more sync.Cond
	left int
	done bool
}

func newCredit() *credit {
	c := &credit{left: stdinWindow}
	c.more.L = &c.mu
	return c
}

// take waits until some of want may be sent and says how much; 0 when the exec has ended.
func (c *credit) take(want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.left == 0 && !c.done {
		c.more.Wait()
	}
	if c.done {
		return 0
	}
	n := min(want, c.left)
	c.left -= n
	return n
}

func (c *credit) give(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > stdinWindow-c.left {
		return fmt.Errorf("%d bytes of stdin acknowledged, %d were sent: %w", n, stdinWindow-c.left, errFrame)
	}
	c.left += n
	c.more.Broadcast()
	return nil
}

func (c *credit) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	c.more.Broadcast()
}
