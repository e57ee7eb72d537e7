package fake

import "net"

// gated is the guest's end of the channel: while the guest is paused nothing goes in or out.
type gated struct {
	net.Conn
	cpu *cpu
}

func (g gated) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if stopped := g.cpu.step(nil, agent, func() error { return nil }); stopped != nil {
		return 0, stopped
	}
	return n, err
}

func (g gated) Write(p []byte) (int, error) {
	if stopped := g.cpu.step(nil, agent, func() error { return nil }); stopped != nil {
		return 0, stopped
	}
	return g.Conn.Write(p)
}
