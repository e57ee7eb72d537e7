package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The network every guest sees, whatever the host's engine does behind it.
const ethernet = "eth0"

var (
	ownAddress = netip.MustParsePrefix("10.0.2.15/24")
	gateway    = netip.MustParseAddr("10.0.2.2")
)

const nameserver = "10.0.2.3"

// bringUpNetwork configures the loopback and, if there is one, the Ethernet interface.
func bringUpNetwork() error {
	n, err := openNetlink()
	if err != nil {
		return err
	}
	defer n.close()
	lo, err := indexOf("lo")
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := n.link(lo, unix.IFF_UP, unix.IFF_UP, nil); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	eth, err := indexOf(ethernet)
	if os.IsNotExist(err) {
		return nil // a machine without a network
	}
	if err == nil {
		setInterface("ipv6", "disable_ipv6")
		setInterface("ipv4", "arp_notify")
		err = n.addAddress(eth, ownAddress)
	}
	if err == nil {
		err = upWithRoute(n, eth)
	}
	if err != nil {
		return fmt.Errorf("bring %s up: %w", ethernet, err)
	}
	return nil
}

// setInterface switches something of the Ethernet interface on. A kernel that has no such switch needs none.
//
//	disable_ipv6  nothing speaks it there, and the kernel would look for a router after every restore, which under emulation
//	              costs thousands of instructions to be translated; the loopback keeps it
//	arp_notify    a fork's new address is announced (ip-sysctl): the network may have learned the old one from a packet that
//	              the kernel sent right after the restore
func setInterface(protocol, name string) {
	if fd, err := unix.Open("/proc/sys/net/"+protocol+"/conf/"+ethernet+"/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Write(fd, []byte("1\n"))
		unix.Close(fd)
	}
}

func upWithRoute(n netlink, index int) error {
	if err := n.link(index, unix.IFF_UP, unix.IFF_UP, nil); err != nil {
		return err
	}
	return n.addDefaultRoute(index, gateway)
}

// writeNameFiles gives programs a resolver and a localhost if the root disk has none.
func writeNameFiles() error {
	if !hasContent("/etc/resolv.conf") {
		if err := replaceFile("/etc/resolv.conf", "nameserver "+nameserver+"\n"); err != nil {
			return err
		}
	}
	if !hasContent("/etc/hosts") {
		return replaceFile("/etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	}
	return nil
}

func hasContent(path string) bool {
	b, err := os.ReadFile(path)
	return err == nil && len(bytes.TrimSpace(b)) > 0
}

// replaceFile writes a file in the place of whatever is there, a dangling link for example.
func replaceFile(path, text string) error {
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		return err
	}
	return writeAtomically(path, text)
}
