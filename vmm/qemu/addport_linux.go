package qemu

import (
	"context"
	"fmt"
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
