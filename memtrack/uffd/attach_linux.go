package uffd

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// caller runs system calls inside another process.
type caller interface {
	// call gives the result; an unix.Errno is the system call's own.
	call(number uintptr, args ...uint64) (uint64, error)
	// put copies bytes, a page at most, to where scratch is.
	put(b []byte) error
	// get copies bytes from where scratch is, and offset.
	get(b []byte, offset uint64) error
	// scratch is the address of a page in that process to point arguments at.
	scratch() uint64
}

// Protect registers the memory of a waiting machine for asynchronous write protection, for pagemap.Scan. It lasts as long
// as the process. Preconditions: the machine's process runs no guest code.
func Protect(ctx context.Context, s memtrack.Span) error {
	err := inject(ctx, s.PID, func(c caller) error {
		_, err := register(c, s, false, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("write-protect the memory of process %d: %w", s.PID, err)
	}
	return nil
}

// attach maps base over the machine's memory, registers it and gives our copy of the userfaultfd.
func attach(ctx context.Context, s memtrack.Span, base *Base, protect bool) (int, error) {
	base.life.RLock()
	defer base.life.RUnlock()
	if base.fd < 0 {
		return -1, memtrack.ErrEnded
	}
	file, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", base.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the shared memory to be read only: %w", err)
	}
	defer unix.Close(file)
	var theirs uint64
	err = inject(ctx, s.PID, func(c caller) (err error) {
		if err := lend(c, s.PID, file, func(fd uint64) error { return remap(c, s, fd) }); err != nil {
			return fmt.Errorf("put the shared memory over its own: %w", err)
		}
		if theirs, err = register(c, s, true, protect); err != nil {
			return err
		}
		if _, err := c.call(unix.SYS_MPROTECT, s.Start, s.End-s.Start, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return fmt.Errorf("make its memory accessible: %w", err)
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	return fetch(s.PID, int(theirs))
}

// remap puts a private mapping of a file of theirs over the memory, inaccessible as yet.
func remap(c caller, s memtrack.Span, fd uint64) error {
	if _, err := c.call(unix.SYS_MMAP, s.Start, s.End-s.Start, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE, fd, 0); err != nil {
		return fmt.Errorf("map it: %w", err)
	}
	for _, advice := range []uint64{unix.MADV_DONTFORK, unix.MADV_DONTDUMP} { // as QEMU had it
		if _, err := c.call(unix.SYS_MADVISE, s.Start, s.End-s.Start, advice); err != nil {
			return fmt.Errorf("advise on its memory (%d): %w", advice, err)
		}
	}
	return nil
}

// register makes a userfaultfd there, over the memory, and gives its number there.
func register(c caller, s memtrack.Span, missing, protect bool) (fd uint64, err error) {
	if fd, err = makeThere(c, s.PID); err != nil {
		return 0, fmt.Errorf("make a userfaultfd there: %w", err)
	}
	features, mode := registration(missing, protect)
	for _, step := range []struct {
		what    string
		request uint64
		arg     []byte
	}{
		{"ask its userfaultfd for what we need", ioctlAPI, encodeWords(apiVersion, features, 0)},
		{"register its memory", ioctlRegister, encodeWords(s.Start, s.End-s.Start, mode, 0)},
	} {
		err := c.put(step.arg)
		if err == nil {
			_, err = c.call(unix.SYS_IOCTL, fd, step.request, c.scratch())
		}
		if err != nil {
			_, closeErr := c.call(unix.SYS_CLOSE, fd)
			return 0, errors.Join(fmt.Errorf("%s: %w", step.what, err), closeErr)
		}
	}
	return fd, nil
}

// devicePath makes userfaultfds for whoever holds a descriptor of it (Linux 6.1), where the system call asks for privilege.
const devicePath = "/dev/userfaultfd"

// makeThere makes a userfaultfd there that may serve faults of the kernel's, too: with our descriptor of the device, which a
// process without privilege needs, or, where there is none, with what that process may itself.
func makeThere(c caller, pid int) (fd uint64, err error) {
	const flags = unix.O_CLOEXEC | unix.O_NONBLOCK
	device, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.call(unix.SYS_USERFAULTFD, flags)
	}
	defer unix.Close(device)
	err = lend(c, pid, device, func(theirs uint64) (err error) {
		fd, err = c.call(unix.SYS_IOCTL, theirs, ioctlNew, flags)
		return err
	})
	return fd, err
}

// fetch copies a descriptor of another process.
func fetch(pid, theirs int) (int, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, theirs, 0)
	if err != nil {
		return -1, fmt.Errorf("copy descriptor %d of process %d: %w", theirs, pid, err)
	}
	return fd, nil
}
