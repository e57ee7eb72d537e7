package main

import (
	"fmt"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

const defaultRows, defaultCols = 24, 80

// openTerminal makes a pseudo terminal: our end and the command's, the latter owned by who.
func openTerminal(size guest.WindowSize, who account) (ours, theirs int, err error) {
	ours, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open a terminal: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(ours)
			err = fmt.Errorf("set a terminal up: %w", err)
		}
	}()
	if err = unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, err
	}
	if err = resize(ours, size); err != nil {
		return -1, -1, err
	}
	number, err := unix.IoctlGetInt(ours, unix.TIOCGPTN)
	if err != nil {
		return -1, -1, err
	}
	theirs, err = unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	if err = unix.Fchown(theirs, int(who.uid), -1); err != nil {
		unix.Close(theirs)
		return -1, -1, err
	}
	return ours, theirs, nil
}

func resize(fd int, size guest.WindowSize) error {
	if size.Rows == 0 || size.Cols == 0 {
		size = guest.WindowSize{Rows: defaultRows, Cols: defaultCols}
	}
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}
