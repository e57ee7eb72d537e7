package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// netlink is a route socket: each request is answered before the next.
type netlink struct{ fd int }

func openNetlink() (netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return netlink{}, fmt.Errorf("open a netlink socket: %w", err)
	}
	limit := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		unix.Close(fd)
		return netlink{}, err
	}
	return netlink{fd}, nil
}

func (n netlink) close() { unix.Close(n.fd) }

// request sends one message and waits for its acknowledgement. body is the fixed part and the attributes.
func (n netlink) request(kind, flags uint16, body []byte) error {
	ne := binary.NativeEndian
	msg := ne.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = ne.AppendUint16(msg, kind)
	msg = ne.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = ne.AppendUint32(msg, 1) // sequence
	msg = ne.AppendUint32(msg, 0) // port
	msg = append(msg, body...)
	if err := unix.Sendto(n.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	got, _, err := unix.Recvfrom(n.fd, buf, 0)
	if err != nil {
		return err
	}
	if got < unix.NLMSG_HDRLEN+4 || ne.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink answered something else than an acknowledgement")
	}
	if code := int32(ne.Uint32(buf[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attribute appends one attribute, padded.
func attribute(body []byte, kind uint16, value []byte) []byte {
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(value)))
	body = binary.NativeEndian.AppendUint16(body, kind)
	body = append(body, value...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return body
}

// link changes flags of an interface, and its address if mac isn't nil.
func (n netlink) link(index int, flags, change uint32, mac []byte) error {
	ne := binary.NativeEndian
	body := []byte{unix.AF_UNSPEC, 0, 0, 0}
	body = ne.AppendUint32(body, uint32(index))
	body = ne.AppendUint32(body, flags)
	body = ne.AppendUint32(body, change)
	if mac != nil {
		body = attribute(body, unix.IFLA_ADDRESS, mac)
	}
	return n.request(unix.RTM_NEWLINK, 0, body)
}

func (n netlink) addAddress(index int, p netip.Prefix) error {
	body := []byte{unix.AF_INET, byte(p.Bits()), 0, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, uint32(index))
	body = attribute(body, unix.IFA_LOCAL, p.Addr().AsSlice())
	body = attribute(body, unix.IFA_ADDRESS, p.Addr().AsSlice())
	return n.request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body)
}

func (n netlink) addDefaultRoute(index int, gateway netip.Addr) error {
	body := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	body = attribute(body, unix.RTA_GATEWAY, gateway.AsSlice())
	body = attribute(body, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	return n.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body)
}

// indexOf gives an interface's number.
func indexOf(name string) (int, error) {
	b, err := os.ReadFile("/sys/class/net/" + name + "/ifindex")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func parseMAC(text string) ([]byte, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 6 {
		return nil, fmt.Errorf("%q is no Ethernet address", text)
	}
	mac := make([]byte, 6)
	for i, part := range parts {
		b, err := strconv.ParseUint(part, 16, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is no Ethernet address", text)
		}
		mac[i] = byte(b)
	}
	return mac, nil
}
