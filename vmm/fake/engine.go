package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"flash/memtrack"
	"flash/vmm"
)

// Config is what an engine may be told. The zero Config works.
type Config struct {
	Now   func() time.Time // the host's clock; nil: time.Now
	Tick  time.Duration    // the guest counts this often by itself while it runs; 0: only when it does something
	Facts vmm.Facts        // zero: DefaultFacts. Another Version makes an engine that can't load this one's states

	// Fault is asked before each step; an error makes the step fail, waiting makes it slow. nil: no faults.
	// The engine's steps are probe boot restore pause resume save cut pending addport close; the agent's are
	// session start kill freeze thaw repair copyin copyout sync shutdown.
	Fault func(ctx context.Context, step string) error
}

// DefaultFacts are what a fake machine's state says of itself.
func DefaultFacts() vmm.Facts {
	return vmm.Facts{Engine: "fake", Version: "1", MachineType: "fake-1", CPU: "fake", Accel: "none", Layout: "1"}
}

// Engine makes fake machines.
type Engine struct {
	config Config

	mu         sync.Mutex // guards the rest
	machines   []*Machine // not closed yet, oldest first
	violations []string
	closed     bool
}

// New makes an engine.
func New(c Config) *Engine {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Facts == (vmm.Facts{}) {
		c.Facts = DefaultFacts()
	}
	return &Engine{config: c}
}

func (e *Engine) Name() string { return "fake" }

// Probe never finds anything missing but shared memory.
func (e *Engine) Probe(ctx context.Context) (vmm.Capabilities, error) {
	if err := e.fault(ctx, "probe"); err != nil {
		return vmm.Capabilities{}, err
	}
	return vmm.Capabilities{Facts: e.config.Facts, Tracker: new(memtrack.BufferTracker).Name(), LazyPager: true,
		Reasons: map[string]string{"shared": "fake machines keep their memory to themselves"}}, nil
}

// CanRestore compares every field.
func (e *Engine) CanRestore(_ context.Context, f vmm.Facts) error {
	here := e.config.Facts
	var differ []string
	for _, field := range []struct{ name, there, here string }{
		{"engine", f.Engine, here.Engine}, {"version", f.Version, here.Version}, {"machine type", f.MachineType, here.MachineType},
		{"CPU model", f.CPU, here.CPU}, {"accelerator", f.Accel, here.Accel}, {"device layout", f.Layout, here.Layout},
	} {
		if field.there == "" {
			differ = append(differ, field.name+" is missing from the state")
		} else if field.there != field.here {
			differ = append(differ, fmt.Sprintf("%s is %s there and %s here", field.name, field.there, field.here))
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", vmm.ErrIncompatible, strings.Join(differ, "; "))
}

// Boot gives a machine whose memory is zero. Its kernel and initrd must be there, but are not looked at.
func (e *Engine) Boot(ctx context.Context, s vmm.Spec, a vmm.Attach) (vmm.Machine, error) {
	if err := e.fault(ctx, "boot"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("boot a fake machine: %w", err)
	}
	for _, file := range []string{s.Kernel, s.Initrd} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("boot a fake machine: %w", err)
		}
	}
	if s.MemBytes < minMemBytes || s.MemBytes%memtrack.PageBytes != 0 {
		return nil, fmt.Errorf("boot a fake machine: %d bytes of memory; it takes whole pages, and %d bytes at least", s.MemBytes, minMemBytes)
	}
	memory := memtrack.NewBuffer(s.MemBytes)
	memory.SetScratch(a.Scratch)
	return e.add(s, a, memory, nil)
}

// Restore gives a machine that has read nothing of its memory yet but the working set.
func (e *Engine) Restore(ctx context.Context, s vmm.Spec, a vmm.Attach, st vmm.State) (vmm.Machine, error) {
	if err := e.fault(ctx, "restore"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("restore a fake machine: %w", err)
	}
	if err := e.CanRestore(ctx, st.Facts); err != nil {
		return nil, fmt.Errorf("restore a fake machine: %w", err)
	}
	if a.Memory == nil || a.Memory.Slots()*memtrack.PageBytes != s.MemBytes {
		return nil, fmt.Errorf("restore a fake machine: its memory is to have %d bytes, and the source has another number", s.MemBytes)
	}
	memory := memtrack.NewLazyBuffer(a.Memory)
	memory.SetScratch(a.Scratch)
	if len(a.WorkingSet) > 0 {
		pages := slices.Compact(slices.Sorted(slices.Values(a.WorkingSet)))
		if err := memory.View(ctx, pages, make([]byte, len(pages)*memtrack.PageBytes)); err != nil {
			return nil, fmt.Errorf("restore a fake machine: %w", err)
		}
	}
	return e.add(s, a, memory, &st)
}

func (e *Engine) add(s vmm.Spec, a vmm.Attach, memory *memtrack.Buffer, st *vmm.State) (vmm.Machine, error) {
	if s.Facts != (vmm.Facts{}) && st == nil {
		if err := e.CanRestore(context.Background(), s.Facts); err != nil {
			return nil, fmt.Errorf("boot a fake machine: %w", err)
		}
	}
	m, err := newMachine(e, s, a, memory, st)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, errors.Join(errors.New("the fake engine is closed"), m.Close())
	}
	e.machines = append(e.machines, m)
	e.mu.Unlock()
	return m, nil
}

// Close fails when a machine has not been closed.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if n := len(e.machines); n > 0 {
		return fmt.Errorf("close the fake engine: %d machines are still open", n)
	}
	return nil
}

// Machines gives the machines that have not been closed, oldest first.
func (e *Engine) Machines() []*Machine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.machines)
}

// Violations gives what must never have happened. Tests of a host assert that there are none.
func (e *Engine) Violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.violations)
}

func (e *Engine) violated(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.violations = append(e.violations, fmt.Sprintf(format, args...))
}

func (e *Engine) forget(m *Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.machines = slices.DeleteFunc(e.machines, func(o *Machine) bool { return o == m })
}

func (e *Engine) fault(ctx context.Context, step string) error {
	if e.config.Fault == nil {
		return nil
	}
	if err := e.config.Fault(ctx, step); err != nil {
		return fmt.Errorf("fake %s: %w", step, err)
	}
	return nil
}
