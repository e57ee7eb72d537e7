package nbd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"flash/blockdelta"
)

// transmission is a connection after its handshake: one goroutine reads requests, each is handled on its own, and
// whoever has an answer writes it.
type transmission struct {
	conn     io.ReadWriter
	overlay  *blockdelta.Overlay
	inFlight *atomic.Int64        // the server's
	failed   func(request, error) // told of requests that failed although they were in order
	requests *semaphore.Weighted
	bytes    *semaphore.Weighted
	handlers sync.WaitGroup

	mu      sync.Mutex // guards writing; held across a write, which is what it is for
	broken  error      // a write failed: the stream is of no use any more
	onBreak func()     // ends the connection, which ends the reader
}

// run serves until the client disconnects, breaks the protocol, or ctx ends. It returns when nothing is in flight.
func (t *transmission) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.handlers.Wait()
	defer cancel() // nobody waits for the answers any more
	r := bufio.NewReaderSize(t.conn, 64<<10)
	for {
		var header [requestHeaderBytes]byte
		if _, err := io.ReadFull(r, header[:]); err == io.EOF {
			return nil // a client may hang up between requests
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		q, err := decodeRequest(&header)
		if err != nil {
			return err
		}
		if q.command == cmdDisconnect {
			t.handlers.Wait() // the specification has the server finish what is in flight
			return nil
		}
		if err := t.accept(ctx, q, r); err != nil {
			return err
		}
	}
}

// accept answers a request or starts what will. It fails only when the connection is of no use any more.
func (t *transmission) accept(ctx context.Context, q request, r *bufio.Reader) error {
	if e := q.check(t.overlay.Bytes()); e != wireOK {
		if q.command == cmdWrite { // its data comes all the same
			if _, err := io.CopyN(io.Discard, r, int64(q.length)); err != nil {
				return fmt.Errorf("skip the %d bytes of a refused write: %w", q.length, err)
			}
		}
		return t.answer(q, e)
	}
	if q.command == cmdFlush {
		return t.answer(q, wireOK)
	}
	t.inFlight.Add(1)
	held, err := t.admit(ctx, q)
	if err != nil {
		t.inFlight.Add(-1)
		return err
	}
	var b *buffer
	if q.command == cmdWrite || q.command == cmdRead {
		b = takeBuffer(int(q.length))
	}
	if q.command == cmdWrite {
		if _, err := io.ReadFull(r, b.data(int(q.length))); err != nil {
			b.giveBack()
			t.release(held)
			t.inFlight.Add(-1)
			return fmt.Errorf("read the %d bytes of a write at offset %d: %w", q.length, q.offset, err)
		}
	}
	t.handlers.Go(func() {
		t.handle(ctx, q, b)
		if b != nil {
			b.giveBack()
		}
		t.release(held)
	})
	return nil
}

// admit waits until the connection may have one request more in flight.
func (t *transmission) admit(ctx context.Context, q request) (heldBytes int64, err error) {
	if q.command == cmdWrite || q.command == cmdRead {
		heldBytes = max(int64(q.length), 1<<leastClassBits)
	}
	if err := t.requests.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	if err := t.bytes.Acquire(ctx, heldBytes); err != nil {
		t.requests.Release(1)
		return 0, err
	}
	return heldBytes, nil
}

func (t *transmission) release(heldBytes int64) {
	t.bytes.Release(heldBytes)
	t.requests.Release(1)
}

// handle carries a request out and answers it.
func (t *transmission) handle(ctx context.Context, q request, b *buffer) {
	var err error
	switch q.command {
	case cmdRead:
		err = t.overlay.ReadAt(ctx, b.data(int(q.length)), int64(q.offset))
	case cmdWrite:
		err = t.overlay.WriteAt(ctx, b.data(int(q.length)), int64(q.offset))
	case cmdTrim, cmdWriteZeroes:
		err = t.overlay.Zero(ctx, int64(q.offset), int64(q.length))
	}
	// Before the answer: who has the answer to its last request may rely on InFlight being 0.
	t.inFlight.Add(-1)
	if err != nil {
		t.failed(q, err)
	}
	e := wireErrorOf(err)
	if q.command == cmdRead && e == wireOK {
		putReply(b.header(), q.cookie, wireOK)
		_ = t.write(b.message(int(q.length))) // write ends the connection when it fails
		return
	}
	_ = t.answer(q, e)
}

// answer sends a reply without data.
func (t *transmission) answer(q request, e wireError) error {
	var p [replyHeaderBytes]byte
	putReply(p[:], q.cookie, e)
	return t.write(p[:])
}

func (t *transmission) write(p []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return t.broken
	}
	if _, err := t.conn.Write(p); err != nil {
		t.broken = fmt.Errorf("send an answer: %w", err)
		t.onBreak()
	}
	return t.broken
}
