package main

import (
	"io"
	"os"
	"syscall"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// pump moves what a command writes into an Output. It goes on until the last holder of the other end has let go, long
// after the command itself has ended if need be; then the Output discards.
type pump struct {
	fd       int
	file     *os.File // waits for fd in the poller
	raw      syscall.RawConn
	out      *guest.Output
	terminal bool
}

// maxTerminalBytes is more than the kernel keeps for a terminal.
const maxTerminalBytes = 256 << 10

// newPump takes over fd, the reading end.
func newPump(fd int, out *guest.Output, terminal bool) (*pump, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	p := &pump{fd: fd, file: os.NewFile(uintptr(fd), "output"), out: out, terminal: terminal}
	var err error
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, err
	}
	go p.run()
	return p, nil
}

func (p *pump) run() {
	defer p.file.Close()
	p.raw.Read(func(uintptr) bool {
		for {
			n, err := p.out.Fill(p.read)
			if err == unix.EAGAIN {
				return false
			}
			if n <= 0 {
				return true
			}
		}
	})
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

// drain makes sure that everything written before is in the Output, without waiting for more. It reads beside run: each
// read and its place in the Output are one step, so the order stays. A background process may write faster than we read, so
// a pipe's present length bounds it. A terminal's length can't be asked for: reading it makes the kernel deliver what is
// under way, and its buffers are small.
func (p *pump) drain() {
	p.control(func(fd int) error {
		left := maxTerminalBytes
		if !p.terminal {
			n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
			if err != nil {
				return err
			}
			left = n
		}
		for left > 0 {
			n, err := p.out.Fill(p.read)
			if n <= 0 {
				return err
			}
			left -= n
		}
		return nil
	})
}

// control calls f with the descriptor unless it has been closed.
func (p *pump) control(f func(fd int) error) (err error) {
	if cerr := p.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return nil // it has gone with its command
	}
	return err
}
