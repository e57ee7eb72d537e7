package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"
)

// awaken is what the guest does first in this machine. Precondition: the token is held and the machine paused.
func (m *Machine) awaken(ctx context.Context) error {
	patient := m.ram.ended
	m.ram.ended = ctx.Done() // the caller waits no longer than this
	defer func() { m.ram.ended = patient }()
	var err error
	if m.ran {
		m.kernel, err = m.ram.loadKernel()
	} else {
		err = m.boot()
	}
	if err != nil {
		m.kernel, m.ram.stored = nil, nil // tried again by the next Resume
		if ctx.Err() != nil {
			return fmt.Errorf("the guest waits for its memory: %w", ctx.Err())
		}
		m.Panic(err.Error())
		return err
	}
	m.ran = true
	if m.kernel.Frozen {
		m.cpu.setFrozen(true)
		m.thawLater(m.kernel.ThawAt)
	}
	if err := m.adopt(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	m.up = true
	m.mu.Unlock()
	m.spawn(func() {
		_ = m.server.Serve(gated{m.inside, m.cpu}) // it ends when either side hangs up
	})
	if m.engine.config.Tick > 0 {
		m.spawn(m.tick)
	}
	return nil
}

// boot lays out memory and disk. All of it is the guest's own doing.
func (m *Machine) boot() error {
	id := sha256.Sum256(fmt.Append(nil, m.spec.MAC, m.cpu.boot.UnixNano()))
	m.kernel = &kernel{BootID: fmt.Sprintf("%x", id[:16]), Hostname: "fake", MAC: m.spec.MAC}
	if err := m.ram.store([]byte(memoryMagic), 0); err != nil {
		return err
	}
	if m.files.disk != nil {
		if err := m.files.format(m.cpu.wall()); err != nil {
			return err
		}
	}
	m.console("booted")
	return m.ram.storeKernel(m.kernel)
}

func (m *Machine) tick() {
	t := time.NewTicker(m.engine.config.Tick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-m.cpu.ended:
			return
		}
		if m.cpu.step(nil, agent, m.ram.count) != nil {
			return
		}
	}
}

// act is a step of the guest: it counts, does f, and writes down what has changed.
func (m *Machine) act(stop <-chan struct{}, who mode, f func() error) error {
	return m.cpu.step(stop, who, func() error {
		if who == workload && m.unrepaired {
			m.unrepaired = false // told once
			m.engine.violated("%s: the workload ran before the random generator was repaired", m.spec.MAC)
		}
		if err := m.ram.count(); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		if err := m.ram.storeKernel(m.kernel); err != nil {
			if err != errStopped {
				m.Panic(err.Error())
			}
			return err
		}
		return nil
	})
}
