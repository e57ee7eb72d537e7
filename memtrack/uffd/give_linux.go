package uffd

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What recvmsg is pointed at, in the scratch page (native byte order; <bits/socket.h>, 64 bit).
//
//	 0  struct msghdr   56 bytes  u64 name, u32 namelen, 4 unused, u64 iov, u64 iovlen, u64 control, u64 controllen, i32 flags, 4 unused
//	64  struct iovec    16 bytes  u64 base, u64 len
//	80  the one byte that a descriptor travels with
//	96  struct cmsghdr  16 bytes, then an i32: the descriptor's number
const (
	iovecAt   = 64
	byteAt    = 80
	controlAt = 96
)

// give copies a descriptor of ours into the stopped process and says which number it has there; it is closed there on exec.
// The process may be anybody's: it opens nothing, so nobody's files need to be open to it. It makes a pair of sockets, of
// which we take one end, and receives over the other.
func give(c caller, pid, file int) (theirs uint64, err error) {
	if _, err := c.call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, c.scratch()); err != nil {
		return 0, fmt.Errorf("make a socket pair there: %w", err)
	}
	numbers := make([]byte, 8)
	if err := c.get(numbers, 0); err != nil {
		return 0, err
	}
	near, far := binary.NativeEndian.Uint32(numbers), binary.NativeEndian.Uint32(numbers[4:])
	defer func() {
		for _, end := range []uint32{near, far} {
			if _, closeErr := c.call(unix.SYS_CLOSE, uint64(end)); closeErr != nil {
				err = errors.Join(err, fmt.Errorf("close a socket there: %w", closeErr))
			}
		}
	}()
	ours, err := fetch(pid, int(far))
	if err != nil {
		return 0, err
	}
	defer unix.Close(ours)
	rights := unix.UnixRights(file)
	if err := unix.Sendmsg(ours, []byte{0}, rights, nil, 0); err != nil {
		return 0, fmt.Errorf("send a descriptor: %w", err)
	}
	page := make([]byte, controlAt)
	at := c.scratch()
	copy(page, encodeWords(0, 0, at+iovecAt, 1, at+controlAt, uint64(len(rights)), 0))
	copy(page[iovecAt:], encodeWords(at+byteAt, 1))
	if err := c.put(page); err != nil {
		return 0, err
	}
	if _, err := c.call(unix.SYS_RECVMSG, uint64(near), at, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT); err != nil {
		return 0, fmt.Errorf("receive a descriptor there: %w", err)
	}
	if err := c.get(rights, controlAt); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("a descriptor arrived as %d messages: %w", len(messages), errors.Join(err, unix.EBADMSG))
	}
	arrived, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(arrived) != 1 {
		return 0, fmt.Errorf("%d descriptors arrived: %w", len(arrived), errors.Join(err, unix.EBADMSG))
	}
	return uint64(arrived[0]), nil
}

// lend gives a descriptor for as long as use takes.
func lend(c caller, pid, file int, use func(theirs uint64) error) error {
	theirs, err := give(c, pid, file)
	if err != nil {
		return err
	}
	err = use(theirs)
	if _, closeErr := c.call(unix.SYS_CLOSE, theirs); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close descriptor %d there: %w", theirs, closeErr))
	}
	return err
}
