package qemu

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"flash/vmm"
)

// AddPort publishes a port on the loopback. What goes wrong comes back as text, which is an error here.
func (m *machine) AddPort(ctx context.Context, p vmm.Port) (vmm.Port, error) {
	if err := checkPort(p); err != nil {
		return vmm.Port{}, err
	}
	m.addingPort.Lock()
	defer m.addingPort.Unlock()
	text, err := m.in.qmp.human(ctx, fmt.Sprintf("hostfwd_add net0 tcp:127.0.0.1:%d-:%d", p.Host, p.Guest))
	if err != nil {
		return vmm.Port{}, m.explain(fmt.Sprintf("publish port %d", p.Guest), err)
	}
	if text = strings.TrimSpace(text); text != "" {
		if first := firstOpenPort(); p.Host != 0 && p.Host < first && m.in.user != nil {
			return vmm.Port{}, fmt.Errorf("publish port %d at %d: QEMU runs without privilege, and ports below %d are closed to it; choose a higher one, or open them: sysctl net.ipv4.ip_unprivileged_port_start=%d",
				p.Guest, p.Host, first, p.Host)
		}
		return vmm.Port{}, fmt.Errorf("publish port %d at %d: QEMU says %q", p.Guest, p.Host, text)
	}
	if p.Host == 0 {
		list, err := m.in.qmp.human(ctx, "info usernet")
		if err != nil {
			return vmm.Port{}, m.explain(fmt.Sprintf("publish port %d", p.Guest), err)
		}
		if p, err = chosenPort(list, p.Guest, m.Ports()); err != nil {
			return vmm.Port{}, err
		}
	}
	m.mu.Lock()
	m.ports = append(m.ports, p)
	m.mu.Unlock()
	return p, nil
}

// firstOpenPort is from where on anybody may listen.
func firstOpenPort() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return 1024
}
