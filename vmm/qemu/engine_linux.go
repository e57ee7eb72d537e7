package qemu

import (
	"context"
	"errors"
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
	accel        string   // as configured
	restricted   []string // Config.Memory
	callDeadline time.Duration
	log          *slog.Logger
	groups       *cgroups          // nil: none; the probe finds out whether they can be used
	noLimits     map[string]string // why some, or all, can't be had
	spawner      *spawner
	pool         *pool
	bases        *bases
	alone        atomic.Uint64 // counts bases that are shared with nobody

	closeOnce sync.Once

	mu     sync.Mutex // guards the rest; held over a probe, so that there is one at a time
	probed *probed

	living sync.Map // *machine → struct{}: supervised and not ended
}

// New finds QEMU. What it can do here is found out by Probe.
func New(c Config) (*Engine, error) {
	switch c.Accel {
	case "", "tcg", "kvm":
	default:
		return nil, fmt.Errorf("qemu: %q is no accelerator; there are tcg and kvm", c.Accel)
	}
	restricted, err := parseRestrictions(c.Memory)
	if err != nil {
		return nil, fmt.Errorf("qemu: %w", err)
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
		binary: binary, runDir: c.RunDir, accel: c.Accel, restricted: restricted, callDeadline: callDeadline, log: c.Log,
		spawner: newSpawner(), bases: newBases(),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.groups, e.noLimits = openCgroups(c.Cgroup, e.log)
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

// confined gives the users that QEMUs run as, and their control groups; nil: ours. Precondition: a probe succeeded.
func (e *Engine) confined() (*accounts, *cgroups) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.probed.accounts, e.probed.groups
}

// CanRestore says what differs between the machine a state was taken from and those made here.
func (e *Engine) CanRestore(ctx context.Context, f vmm.Facts) error {
	host, err := e.Probe(ctx)
	if err != nil {
		return err
	}
	return compareFacts(f, host.Facts)
}

// supervise begins to watch a machine that is handed out.
func (e *Engine) supervise(m *machine) {
	e.living.Store(m, struct{}{})
	go func() {
		m.supervise()
		e.living.Delete(m)
	}()
}

// Close ends the waiting processes, and machines that should have been closed before.
func (e *Engine) Close() error {
	var errs []error
	e.closeOnce.Do(func() {
		e.pool.close()
		e.spawner.refuse()
		e.living.Range(func(m, _ any) bool {
			errs = append(errs, m.(*machine).Close())
			return true
		})
		e.spawner.close()
		e.groups.close()
	})
	return errors.Join(errs...)
}
