package main

import (
	"fmt"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// stdio are a command's standard streams, both ends. -1: none.
type stdio struct {
	terminal                    bool
	null                        int // the agent's, never closed
	in, out, err                int // ours; with a terminal only out
	theirIn, theirOut, theirErr int
}

// openStdio makes the streams of a command that gets null when it has no input.
func openStdio(r guest.ExecRequest, who account, null int) (*stdio, error) {
	s := &stdio{null: null, terminal: r.TTY, in: -1, out: -1, err: -1, theirIn: -1, theirOut: -1, theirErr: -1}
	if err := s.open(r, who); err != nil {
		s.closeOurs()
		s.closeTheirs()
		return nil, err
	}
	return s, nil
}

func (s *stdio) open(r guest.ExecRequest, who account) (err error) {
	if r.TTY {
		if s.out, s.theirIn, err = openTerminal(guest.WindowSize{Rows: r.Rows, Cols: r.Cols}, who); err != nil {
			return err
		}
		if r.Stdin {
			s.in = s.out
		}
		s.theirOut, s.theirErr = s.theirIn, s.theirIn
		return nil
	}
	if r.Stdin {
		s.theirIn, s.in, err = pipe()
	} else {
		s.theirIn = s.null
	}
	if err != nil {
		return fmt.Errorf("open the command's input: %w", err)
	}
	if s.out, s.theirOut, err = pipe(); err != nil {
		return err
	}
	s.err, s.theirErr, err = pipe()
	return err
}

func pipe() (reading, writing int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("make a pipe: %w", err)
	}
	return p[0], p[1], nil
}

func (s *stdio) theirs() []uintptr {
	return []uintptr{uintptr(s.theirIn), uintptr(s.theirOut), uintptr(s.theirErr)}
}

func (s *stdio) closeTheirs() {
	if s.theirIn == s.null {
		s.theirIn = -1
	}
	closeAll(s.theirIn, s.theirOut, s.theirErr)
}
func (s *stdio) closeOurs() { closeAll(s.in, s.out, s.err) }

// closeAll closes each descriptor once, though it may be named more than once.
func closeAll(fds ...int) {
	for i, fd := range fds {
		again := false
		for _, before := range fds[:i] {
			again = again || before == fd
		}
		if fd >= 0 && !again {
			unix.Close(fd)
		}
	}
}
