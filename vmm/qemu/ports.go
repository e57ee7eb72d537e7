package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"flash/vmm"
)

// parseForwards reads the forwarded ports out of "info usernet". Its lines:
//
//	TCP[HOST_FORWARD]  11       127.0.0.1 39493       10.0.2.15  8080     0     0
func parseForwards(text string) []vmm.Port {
	var ports []vmm.Port
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] != "TCP[HOST_FORWARD]" {
			continue
		}
		host, err1 := strconv.ParseUint(fields[3], 10, 16)
		guest, err2 := strconv.ParseUint(fields[5], 10, 16)
		if err1 == nil && err2 == nil {
			ports = append(ports, vmm.Port{Host: int(host), Guest: int(guest)})
		}
	}
	return ports
}

// chosenPort finds which host port a forward to guest got: the one that wasn't known before.
func chosenPort(text string, guest int, known []vmm.Port) (vmm.Port, error) {
	isKnown := map[vmm.Port]bool{}
	for _, p := range known {
		isKnown[p] = true
	}
	for _, p := range parseForwards(text) {
		if p.Guest == guest && !isKnown[p] {
			return p, nil
		}
	}
	return vmm.Port{}, fmt.Errorf("QEMU doesn't list the new forward to port %d: %.200q", guest, text)
}

func checkPort(p vmm.Port) error {
	if p.Host < 0 || p.Host > 65535 || p.Guest < 1 || p.Guest > 65535 {
		return fmt.Errorf("port %d to %d: not TCP port numbers", p.Host, p.Guest)
	}
	return nil
}
