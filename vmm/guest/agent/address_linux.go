package main

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// interfaceRequest is a struct ifreq that holds a hardware address.
//
//	offset  bytes  what
//	     0     16  the interface's name, ended by zeros
//	    16      2  kind of address: 1, Ethernet
//	    18      6  the address
//	    24     16  unused
type interfaceRequest [40]byte

const ethernetKind = 1 // ARPHRD_ETHER

func newInterfaceRequest(name string) *interfaceRequest {
	r := new(interfaceRequest)
	copy(r[:unix.IFNAMSIZ-1], name)
	binary.NativeEndian.PutUint16(r[16:], ethernetKind)
	return r
}

func (r *interfaceRequest) address() []byte { return r[18:24] }

// openAddresses opens what setMAC asks the kernel through: any socket will do. -1 where there are none.
func openAddresses() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// setMAC changes an interface's address, by the call that runs the least of the kernel. Drivers that can't do it while the
// interface is up are asked by netlink, and lose the default route on the way, which is then restored.
func setMAC(socket int, name, text string) error {
	mac, err := parseMAC(text)
	if err != nil {
		return err
	}
	r := newInterfaceRequest(name)
	if err := quickIoctl(socket, unix.SIOCGIFHWADDR, r[:]); err != nil {
		return err
	}
	if bytes.Equal(r.address(), mac) {
		return nil
	}
	r = newInterfaceRequest(name)
	copy(r.address(), mac)
	if err := quickIoctl(socket, unix.SIOCSIFHWADDR, r[:]); err != unix.EBUSY {
		return err
	}
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	n, err := openNetlink()
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.link(index, 0, unix.IFF_UP, nil); err != nil {
		return err
	}
	if err := n.link(index, 0, 0, mac); err != nil {
		return err
	}
	return upWithRoute(n, index)
}
