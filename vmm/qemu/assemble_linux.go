package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"

	"flash/vmm"
)

// assemble makes a paused machine out of a QEMU: disks, ports, console, memory. It takes in over: when it fails, the
// process has ended and nothing is left. base nil: a booting machine.
func (e *Engine) assemble(ctx context.Context, in *instance, a vmm.Attach, base *sharedBase) (_ *machine, err error) {
	m := &machine{
		engine: e, in: in, base: base,
		closing: make(chan struct{}), done: make(chan struct{}), shutDown: make(chan struct{}, 1), ioErrors: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			err = in.blame(err)
			m.undo()
		}
	}()
	if a.Dir != "" {
		if err := m.makeDir(a.Dir); err != nil {
			return nil, err
		}
	}
	if m.console, err = openConsole(in.console, a.Console, e.log); err != nil {
		return nil, err
	}
	hear := m.hear
	in.hears.Store(&hear)
	if m.disks, err = serveDisks(a, in.user, e.log); err != nil {
		return nil, err
	}
	if err := m.disks.plug(ctx, in.qmp, a.Disks); err != nil {
		return nil, err
	}
	for _, p := range a.Ports {
		if _, err := m.AddPort(ctx, p); err != nil {
			return nil, err
		}
	}
	if m.memory, err = openMemory(ctx, in.id.PID, in.shape.memBytes, base, a.Scratch, e.support()); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	m.tracker = m.memory.Tracker()
	return m, nil
}

// makeDir makes the machine's folder and remembers whether it was there: what a failed start made, it removes.
func (m *machine) makeDir(dir string) error {
	m.dir = dir
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		m.madeDir = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the machine's folder: %w", err)
	}
	return nil
}

// undo ends a machine that nobody has seen and that isn't supervised.
func (m *machine) undo() {
	m.in.kill()
	<-m.in.ended
	m.dismantle(true)
	if m.madeDir {
		os.Remove(m.dir) // only if nothing else was put there
	}
}

// dismantle lets go of everything a machine holds, in the order of the package comment, and gives the process's status.
// Precondition: the process has ended.
func (m *machine) dismantle(undo bool) error {
	if m.memory != nil {
		if err := m.memory.close(); err != nil {
			m.engine.log.Warn("the machine's memory didn't end cleanly", "pid", m.in.id.PID, "err", err)
		}
	}
	status := m.in.reap()
	if err := m.disks.close(); err != nil {
		m.engine.log.Warn("the machine's disks didn't end cleanly", "pid", m.in.id.PID, "err", err)
	}
	if m.base != nil {
		m.base.release()
	}
	if m.console != nil {
		m.console.close(undo)
	}
	m.in.close()
	return status
}
