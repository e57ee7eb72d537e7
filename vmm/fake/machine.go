package fake

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
	"flash/vmm/guest"
)

// Machine is one fake guest.
//
//	paused ⇄ running, until Close, Crash, Panic or the guest's own end
type Machine struct {
	engine  *Engine
	spec    vmm.Spec
	attach  vmm.Attach
	tracker tracker
	host    net.Conn // the two ends of the channel
	inside  net.Conn
	server  *guest.Server
	ctx     context.Context // ends with the machine
	cancel  context.CancelFunc
	running sync.WaitGroup // every goroutine of the guest
	greet   chan struct{}  // closed when the host's first session begins
	greeted sync.Once

	// Guarded by the CPU's token.
	cpu        *cpu
	ram        ram
	files      files
	kernel     *kernel // nil until the guest has first run here
	procs      map[*record]*process
	ran        bool // the guest has run, here or before it was saved
	restored   bool
	unrepaired bool // restored, and its generator is still its siblings'

	mu     sync.Mutex // guards the rest
	exit   vmm.Exit
	ended  bool
	up     bool // awaken is over: the agent listens to the real host
	events []string
	ports  []*forward

	adopting map[string]*process // started before the restore and not heard of since, by exec ID
}

func newMachine(e *Engine, s vmm.Spec, a vmm.Attach, memory *memtrack.Buffer, st *vmm.State) (*Machine, error) {
	m := &Machine{engine: e, spec: s, attach: a, cpu: newCPU(e.config.Now), procs: map[*record]*process{}, greet: make(chan struct{})}
	m.ram = ram{Buffer: memory, ended: m.cpu.ended}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.files.ctx = m.ctx
	if len(a.Disks) > 0 {
		m.files.disk = a.Disks[0].Overlay
	}
	m.tracker = tracker{machine: m}
	m.host, m.inside = net.Pipe()
	m.server = guest.NewServer(&handler{m}, guest.Info{Version: "fake"})
	if st != nil {
		ran, err := m.cpu.load(st.Data)
		if err != nil {
			return nil, fmt.Errorf("restore a fake machine: %w", err)
		}
		m.ran, m.restored, m.unrepaired = ran, true, ran
	}
	if err := m.tracker.Start(memory); err != nil {
		return nil, err
	}
	if a.Dir != "" {
		if err := os.MkdirAll(a.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("the machine's folder: %w", err)
		}
	}
	for _, p := range a.Ports {
		if _, err := m.forward(p); err != nil {
			return nil, fmt.Errorf("publish port %d: %w", p.Guest, joinClose(err, m))
		}
	}
	m.event("made")
	return m, nil
}

func joinClose(err error, m *Machine) error {
	m.end(vmm.Exit{Reason: "closed"})
	return err
}

// Pause waits for the step under way. A machine that is paused stays so.
func (m *Machine) Pause(ctx context.Context) error {
	if err := m.enter(ctx, "pause"); err != nil {
		return err
	}
	defer m.cpu.give()
	if m.cpu.running {
		m.cpu.pause()
		m.event("paused")
	}
	return nil
}

// Resume lets the guest go on; at first it boots, or finds out what it was doing when it was saved.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.enter(ctx, "resume"); err != nil {
		return err
	}
	defer m.cpu.give()
	if m.cpu.running {
		return nil
	}
	if m.kernel == nil {
		if err := m.awaken(ctx); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	}
	m.cpu.resume()
	m.event("resumed")
	return nil
}

// SaveState gives the CPU state. Precondition: the machine is paused.
func (m *Machine) SaveState(ctx context.Context) (vmm.State, error) {
	if err := m.enter(ctx, "save"); err != nil {
		return vmm.State{}, err
	}
	defer m.cpu.give()
	if m.cpu.running {
		return vmm.State{}, fmt.Errorf("save state: the machine is running")
	}
	data, err := m.cpu.save(m.ran)
	return vmm.State{Data: data, Facts: m.engine.config.Facts}, err
}

// enter begins an engine's step: it takes the CPU's token, or says why not.
func (m *Machine) enter(ctx context.Context, step string) error {
	if err := m.engine.fault(ctx, step); err != nil {
		return err
	}
	if err := m.cpu.take(ctx); err != nil {
		return fmt.Errorf("%s: the guest is in the middle of a step: %w", step, err)
	}
	if closed(m.cpu.ended) {
		m.cpu.give()
		return fmt.Errorf("%s: %w: %s", step, vmm.ErrGone, m.Exit().Reason)
	}
	return nil
}

func (m *Machine) Tracker() memtrack.Tracker { return &m.tracker }
func (m *Machine) Memory() memtrack.Memory   { return m.ram.Buffer }
func (m *Machine) Channel() net.Conn         { return m.host }
func (m *Machine) Done() <-chan struct{}     { return m.cpu.ended }
func (m *Machine) Process() vmm.Process      { return vmm.Process{} }

// Overlay is the machine's first disk; nil without one.
func (m *Machine) Overlay() *blockdelta.Overlay { return m.files.disk }

func (m *Machine) Touched() []uint64 {
	if !m.restored {
		return nil
	}
	return m.ram.Touched()
}

// Used can't be told: nothing stands between the machine and its memory.
func (m *Machine) Used([]uint64) (used []uint64, known bool) { return nil, false }

func (m *Machine) Exit() vmm.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// Spec is what the machine was made of.
func (m *Machine) Spec() vmm.Spec { return m.spec }

// Events gives what has happened to the machine, in order: "made" "resumed" "frozen" "repaired" "thawed" "started ID" …
func (m *Machine) Events() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

func (m *Machine) event(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, fmt.Sprintf(format, args...))
}

// awake tells whether the guest has found out what it was doing when it was saved.
func (m *Machine) awake() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up
}

func (m *Machine) powerOff() { m.end(vmm.Exit{Reason: "guest shutdown"}) }

// spawn starts one of the guest's goroutines, which Close waits for; none once the machine has ended.
func (m *Machine) spawn(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.running.Go(f)
	}
}

// Crash ends the machine as the death of its process would.
func (m *Machine) Crash() {
	m.end(vmm.Exit{Reason: "killed", Detail: "fake machine crashed", Err: fmt.Errorf("signal: killed")})
}

// Panic ends the machine as a panic of the guest's kernel would.
func (m *Machine) Panic(why string) {
	m.console("Kernel panic - not syncing: " + why)
	m.end(vmm.Exit{Reason: "guest panic", Detail: "Kernel panic - not syncing: " + why})
}

// Hang makes the guest do nothing any more, while the machine can still be paused, saved and closed. A machine restored
// from such a state hangs no longer.
func (m *Machine) Hang() {
	m.cpu.token <- struct{}{}
	defer m.cpu.give()
	m.hang()
}

func (m *Machine) hang() { m.cpu.set(func() { m.cpu.hung = true }) }

// end ends the guest, once. It waits for nothing.
func (m *Machine) end(exit vmm.Exit) {
	m.mu.Lock()
	if m.ended {
		m.mu.Unlock()
		return
	}
	m.ended, m.exit = true, exit
	ports := m.ports
	m.ports = nil
	m.events = append(m.events, "ended: "+exit.Reason)
	m.mu.Unlock()
	for _, f := range ports {
		f.close()
	}
	m.cancel()
	close(m.cpu.ended)
	_ = m.inside.Close() // a pipe's Close can't fail
}

// Close ends the machine and waits until nothing of it is left.
func (m *Machine) Close() error {
	fault := m.engine.fault(context.Background(), "close")
	m.end(vmm.Exit{Reason: "closed"})
	m.running.Wait()
	_ = m.host.Close()
	m.engine.forget(m)
	return fault
}

// console appends a line to the console's file.
func (m *Machine) console(line string) {
	if m.attach.Console == "" {
		return
	}
	f, err := os.OpenFile(m.attach.Console, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // a guest doesn't notice when nobody listens to its console
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "[%12.6f] %s\n", m.cpu.monotonic().Seconds(), line)
}

// tracker is the buffer's own, with faults.
type tracker struct {
	memtrack.BufferTracker
	machine *Machine
}

func (t *tracker) Cut(ctx context.Context) (*memtrack.Delta, error) {
	if err := t.machine.engine.fault(ctx, "cut"); err != nil {
		return nil, err
	}
	return t.BufferTracker.Cut(ctx)
}

func (t *tracker) Pending(ctx context.Context) (int, error) {
	if err := t.machine.engine.fault(ctx, "pending"); err != nil {
		return 0, err
	}
	return t.BufferTracker.Pending(ctx)
}
