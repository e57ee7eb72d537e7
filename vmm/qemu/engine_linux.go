package qemu

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"flash/vmm"
)

// Engine makes machines out of QEMU processes.
type Engine struct {
	binary       string
	runDir       string
	accel        string // as configured
	callDeadline time.Duration
	log          *slog.Logger
	spawner      *spawner
	pool         *pool
	bases        *bases
	alone        atomic.Uint64 // counts bases that are shared with nobody

	closeOnce sync.Once

	mu     sync.Mutex // guards the rest; held over a probe, so that there is one at a time
	probed *probed
}

// New finds QEMU. What it can do here is found out by Probe.
func New(c Config) (*Engine, error) {
	switch c.Accel {
	case "", "tcg", "kvm":
	default:
		return nil, fmt.Errorf("qemu: %q is no accelerator; there are tcg and kvm", c.Accel)
	}
	name := c.Binary
	if name == "" {
		name = "qemu-system-x86_64"
	}
	binary, err := exec.LookPath(name)
	if err == nil {
		binary, err = filepath.Abs(binary)
	}
	if err != nil {
		return nil, fmt.Errorf("qemu: there is no %s (Debian's package is qemu-system-x86): %w: %w", name, vmm.ErrUnsupported, err)
	}
	e := &Engine{
		binary: binary, runDir: c.RunDir, accel: c.Accel, callDeadline: callDeadline, log: c.Log,
		spawner: newSpawner(), bases: newBases(),
	}
	if e.runDir == "" {
		e.runDir = "/"
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	size := c.PoolSize
	switch {
	case size == 0:
		size = defaultPoolSize
	case size < 0:
		size = 0
	}
	e.pool = newPool(size, e.log, func(ctx context.Context, s shape) (*instance, error) { return e.spawn(ctx, s, nil) })
	return e, nil
}

// Name is "qemu".
func (e *Engine) Name() string { return Name }

// CanRestore says what differs between the machine a state was taken from and those made here.
func (e *Engine) CanRestore(ctx context.Context, f vmm.Facts) error {
	host, err := e.Probe(ctx)
	if err != nil {
		return err
	}
	return compareFacts(f, host.Facts)
}

// Close ends the waiting processes. A machine that wasn't closed ends, too: the thread it hangs on does.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.pool.close()
		e.spawner.close()
	})
	return nil
}
