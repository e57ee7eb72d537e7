package fake

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"flash/vmm"
)

// forward is one published port. A connection gets what the guest's listener on that port says, and ends.
type forward struct {
	vmm.Port
	listener net.Listener

	mu     sync.Mutex // guards conns
	conns  map[net.Conn]struct{}
	closed bool
}

// AddPort publishes a port.
func (m *Machine) AddPort(ctx context.Context, p vmm.Port) (vmm.Port, error) {
	if err := m.engine.fault(ctx, "addport"); err != nil {
		return vmm.Port{}, err
	}
	port, err := m.forward(p)
	if err != nil {
		return vmm.Port{}, fmt.Errorf("publish port %d of the guest: %w", p.Guest, err)
	}
	return port, nil
}

func (m *Machine) Ports() []vmm.Port {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ports []vmm.Port
	for _, f := range m.ports {
		ports = append(ports, f.Port)
	}
	return ports
}

func (m *Machine) forward(p vmm.Port) (vmm.Port, error) {
	if p.Guest < 1 || p.Guest > 65535 {
		return vmm.Port{}, fmt.Errorf("%d is no port", p.Guest)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Host)))
	if err != nil {
		return vmm.Port{}, err
	}
	p.Host = l.Addr().(*net.TCPAddr).Port
	f := &forward{Port: p, listener: l, conns: map[net.Conn]struct{}{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		_ = l.Close()
		return vmm.Port{}, vmm.ErrGone
	}
	m.ports = append(m.ports, f)
	m.running.Go(func() { m.serve(f) })
	return p, nil
}

func (m *Machine) serve(f *forward) {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return // closed with the machine
		}
		if !f.add(c) {
			continue
		}
		m.spawn(func() {
			defer f.remove(c)
			var text string
			err := m.act(nil, workload, func() error {
				text = m.listening(f.Guest)
				return nil
			})
			if err == nil {
				_, _ = io.WriteString(c, text) // nobody may be there to hear it
			}
		})
	}
}

// listening gives what a process says on a port; "" when none listens.
func (m *Machine) listening(port int) string {
	for _, p := range m.procs {
		if p.listens == port && p.rec.Exit == nil {
			return p.says
		}
	}
	return ""
}

func (f *forward) add(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = c.Close()
		return false
	}
	f.conns[c] = struct{}{}
	return true
}

func (f *forward) remove(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
	_ = c.Close()
}

func (f *forward) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		_ = c.Close()
	}
}
