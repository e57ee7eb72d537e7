package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"

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
		quietIPv6()
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

// quietIPv6 takes IPv6 off the Ethernet interface, where nothing speaks it: the kernel would look for a router after every
// restore, which under emulation costs thousands of instructions to be translated. The loopback keeps it. A kernel without
// IPv6 has no such switch.
func quietIPv6() {
	if fd, err := unix.Open("/proc/sys/net/ipv6/conf/"+ethernet+"/disable_ipv6", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
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

// setMAC changes an interface's address. Drivers that can't do it while the interface is up lose the default route on the
// way, which is then restored.
func setMAC(name, text string) error {
	mac, err := parseMAC(text)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile("/sys/class/net/" + name + "/address"); err == nil && strings.EqualFold(strings.TrimSpace(string(have)), text) {
		return nil
	}
	index, err := indexOf(name)
	if err != nil {
		return err
	}
	// Right after a restore the kernel announces the old address to the network, which learns it and then sends the first
	// packets astray. This makes it announce the new one, too (ip-sysctl: arp_notify).
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/arp_notify", []byte("1\n"), 0); err != nil {
		return err
	}
	n, err := openNetlink()
	if err != nil {
		return err
	}
	defer n.close()
	err = n.link(index, 0, 0, mac)
	if err != unix.EBUSY {
		return err
	}
	if err := n.link(index, 0, unix.IFF_UP, nil); err != nil {
		return err
	}
	if err := n.link(index, 0, 0, mac); err != nil {
		return err
	}
	return upWithRoute(n, index)
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
