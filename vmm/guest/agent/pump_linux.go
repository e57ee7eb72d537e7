package main

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// pump moves what a command writes into an Output. It goes on until the last holder of the other end has let go, long
// after the command itself has ended if need be; then the Output discards.
//
//	flowing ──drain()──▶ draining ──▶ drained, flowing on ──▶ ended (end of file)
type pump struct {
	fd       int
	file     *os.File // waits for fd in the poller
	raw      syscall.RawConn
	out      *guest.Output
	terminal bool
	draining atomic.Bool
	drained  chan struct{} // closed when all is there that had been written when drain was called
}

// maxTerminalBytes is more than the kernel keeps for a terminal.
const maxTerminalBytes = 256 << 10

// newPump takes over fd, the reading end.
func newPump(fd int, out *guest.Output, terminal bool) (*pump, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	p := &pump{fd: fd, file: os.NewFile(uintptr(fd), "output"), out: out, terminal: terminal, drained: make(chan struct{})}
	var err error
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, err
	}
	go p.run()
	return p, nil
}

func (p *pump) run() {
	defer p.file.Close()
	for ended := false; !ended; {
		err := p.raw.Read(func(uintptr) bool {
			var n int
			var err error
			for !p.draining.Load() {
				n, err = p.out.Fill(p.read)
				if err == unix.EAGAIN {
					return false
				}
				if n <= 0 {
					ended = true
					return true
				}
			}
			return true
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.file.SetReadDeadline(time.Time{}) // drain's, which may come after we have seen its flag
		} else if err != nil {
			ended = true
		}
		if p.draining.Load() && !ended {
			ended = p.drainNow()
			p.draining.Store(false)
			close(p.drained)
		}
	}
	select {
	case <-p.drained:
	default:
		close(p.drained)
	}
}

func (p *pump) read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		if err == unix.EINTR {
			continue
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return n, err
	}
}

// drainNow reads what is there, without waiting for more, and tells whether the end has come. A background process may
// write faster than we read, so a pipe's present length bounds it. A terminal's length can't be asked for: reading it makes
// the kernel deliver what is under way, and its buffers are small.
func (p *pump) drainNow() (ended bool) {
	left := maxTerminalBytes
	if !p.terminal {
		n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
		if err != nil {
			return true
		}
		left = n
	}
	for left > 0 {
		n, err := p.out.Fill(p.read)
		if err == unix.EAGAIN {
			return false
		}
		if n <= 0 {
			return true
		}
		left -= n
	}
	return false
}

// drain waits until everything written before is in the Output. Once.
func (p *pump) drain() {
	p.draining.Store(true)
	p.file.SetReadDeadline(time.Unix(1, 0)) // wakes run
	<-p.drained
}

// control calls f with the descriptor unless it has been closed.
func (p *pump) control(f func(fd int) error) (err error) {
	if cerr := p.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return nil // the terminal has gone with its command
	}
	return err
}
