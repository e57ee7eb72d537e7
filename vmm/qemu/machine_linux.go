package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"flash/memtrack"
	"flash/vmm"
)

// phase is what a machine is doing.
//
//	fresh ──Resume──▶ running ──Pause──▶ paused ──SaveState──▶ saved
//	 (Boot)              ▲                 │ (Restore)           │
//	                     └─────Resume──────┴───────Resume────────┘
//
// A machine may end in any of them; then done is closed.
type phase int

const (
	fresh   phase = iota // booted, no instruction run yet: its kernel is still outside
	paused               // CPUs stopped, disks drained
	saved                // paused, and QEMU is in "postmigrate"; the state is kept
	running              // the guest runs, or QEMU stopped it for a disk error and it is about to be let on
)

// machine is one guest.
type machine struct {
	engine  *Engine
	in      *instance
	memory  *guestMemory
	tracker memtrack.Tracker
	base    *sharedBase // nil after Boot
	disks   disks
	console *console
	dir     string
	madeDir bool

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	done      chan struct{} // closed when everything has ended; exit is set before
	shutDown  chan struct{} // capacity 1: QEMU said SHUTDOWN
	ioErrors  chan struct{} // capacity 1: QEMU stopped the guest for a disk error

	addingPort sync.Mutex // so that a chosen host port can be told apart; before mu

	ops sync.Mutex // held over a whole Pause, Resume, SaveState, or retry after a disk error; before mu

	mu        sync.Mutex // guards the rest; never held across a call to the monitor
	phase     phase
	unsettled bool      // a migration was begun whose end wasn't seen
	state     vmm.State // valid in phase saved
	ports     []vmm.Port
	panicked  bool
	shutdown  string
	exit      vmm.Exit
}

// Pause stops the CPUs; QEMU drains and flushes the disks before it answers. Pausing what is paused is harmless.
func (m *machine) Pause(ctx context.Context) error {
	m.ops.Lock()
	defer m.ops.Unlock()
	switch {
	case hasEnded(m.done):
		return m.explain("pause", vmm.ErrGone)
	case m.now() != running:
		return nil
	}
	if err := m.in.qmp.call(ctx, "stop", nil, nil); err != nil {
		if unanswered(err) {
			// It will stop when it gets there; then it must go on, as the caller believes it does.
			err = errors.Join(err, m.in.qmp.post("cont"))
		}
		return m.explain("pause", err)
	}
	m.mu.Lock()
	m.phase = paused
	m.mu.Unlock()
	return nil
}

// Resume lets the guest go on, from wherever it was. Resuming what runs is harmless.
func (m *machine) Resume(ctx context.Context) error {
	m.ops.Lock()
	defer m.ops.Unlock()
	m.mu.Lock()
	was, unsettled := m.phase, m.unsettled
	m.mu.Unlock()
	switch {
	case hasEnded(m.done):
		return m.explain("resume", vmm.ErrGone)
	case was == running:
		return nil
	}
	if unsettled {
		if err := m.settle(ctx); err != nil {
			return m.explain("resume", err)
		}
	}
	err := m.in.qmp.call(ctx, "cont", nil, nil)
	if err != nil && !unanswered(err) {
		return m.explain("resume", err)
	}
	// An unanswered command will be carried out when QEMU gets there: the guest counts as running, so that Pause works.
	m.mu.Lock()
	m.phase, m.state = running, vmm.State{}
	m.mu.Unlock()
	if err != nil {
		return m.explain("resume", err)
	}
	return nil
}

// unanswered says whether a call ended without QEMU having said anything, and without its end.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// goOn lets a guest go on that QEMU stopped for a disk error, unless it was paused meanwhile: then Resume does it.
func (m *machine) goOn() error {
	m.ops.Lock()
	defer m.ops.Unlock()
	if m.now() != running {
		return nil
	}
	return m.in.qmp.call(context.Background(), "cont", nil, nil)
}

func (m *machine) now() phase {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phase
}

// explain says what was attempted and, of a machine that has ended, why it ended.
func (m *machine) explain(attempt string, err error) error {
	if errors.Is(err, vmm.ErrGone) && waitFor(m.done, time.Second) { // its process ends a moment after its monitor
		exit := m.Exit()
		return fmt.Errorf("%s: %w (%s: %s)", attempt, vmm.ErrGone, exit.Reason, exit.Detail)
	}
	return fmt.Errorf("%s: %w", attempt, err)
}

func (m *machine) Tracker() memtrack.Tracker { return m.tracker }
func (m *machine) Memory() memtrack.Memory   { return m.memory }
func (m *machine) Channel() net.Conn         { return m.in.channel }
func (m *machine) Process() vmm.Process      { return m.in.id }
func (m *machine) Done() <-chan struct{}     { return m.done }

func (m *machine) Touched() []uint64 {
	if m.base == nil {
		return nil
	}
	return m.memory.touched()
}

func (m *machine) Used(pages []uint64) (used []uint64, known bool) {
	if m.base == nil || m.memory.pager == nil {
		return nil, false
	}
	return m.memory.pager.Used(pages)
}

func (m *machine) Exit() vmm.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

func (m *machine) Ports() []vmm.Port {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]vmm.Port(nil), m.ports...)
}

// Close ends the guest as it is, without asking it. What it wrote is in its overlays and memory deltas, not here.
func (m *machine) Close() error {
	m.closeOnce.Do(func() { close(m.closing) })
	if !waitFor(m.done, migrationDeadline) {
		return fmt.Errorf("close: QEMU doesn't end: %s", describe(m.in.id.PID))
	}
	if m.madeDir {
		os.Remove(m.dir) // if the host left nothing there
	}
	return nil
}
