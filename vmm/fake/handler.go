package fake

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"flash/vmm/guest"
)

// handler is the agent: what the guest's Server's requests mean.
type handler struct{ m *Machine }

// step is a step of the agent with its fault.
func (h *handler) step(ctx context.Context, name string, f func() error) error {
	if err := h.m.engine.fault(ctx, name); err != nil {
		return err
	}
	return h.m.act(ctx.Done(), agent, f)
}

// Session seeds the generator of a guest that has just booted. A restored one has a seed, and keeps it until Repair.
func (h *handler) Session(seed []byte) {
	m := h.m
	if !m.awake() {
		return // the session in which commands are adopted
	}
	m.greeted.Do(func() { close(m.greet) })
	if m.engine.fault(m.ctx, "session") != nil {
		return
	}
	_ = m.act(nil, agent, func() error {
		if seeded, err := m.ram.seeded(); err != nil || seeded {
			return err
		}
		return m.ram.mix(seed)
	})
}

// Start starts a command, or goes on with one that the memory remembers.
func (h *handler) Start(r guest.ExecRequest, o guest.Outputs) (guest.Process, error) {
	m := h.m
	// Not only while it awakes: the server lists a command before it has come here.
	if p := m.adoptee(r.ID); p != nil {
		p.out = o
		m.spawn(p.run)
		// The server learns that it has started only when the host has greeted: until then nothing sends its output, and
		// whoever attaches first gets all of it.
		select {
		case <-m.greet:
		case <-m.cpu.ended:
		}
		return p, nil
	}
	var p *process
	err := h.step(m.ctx, "start", func() error {
		if r.Thaw {
			m.thaw()
		}
		if m.cpu.frozen {
			return &guest.AgentError{Code: guest.CodeFrozen, Message: "the workload is frozen"}
		}
		f, err := m.firstFrame(r)
		if err != nil {
			return err
		}
		r.Thaw = false
		rec := &record{Request: r, Group: r.ID, Frames: []*frame{f}, InputDone: o.Stdin == nil}
		m.kernel.Processes = append(m.kernel.Processes, rec)
		p = m.newProcess(rec, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.event("started %s", r.ID)
	m.spawn(p.run)
	return p, nil
}

// firstFrame finds out everything that can be known before a command runs.
func (m *Machine) firstFrame(r guest.ExecRequest) (*frame, error) {
	user, _, _ := strings.Cut(r.User, ":")
	if _, err := strconv.Atoi(user); err != nil && user != "" && user != "root" {
		return nil, &guest.AgentError{Code: guest.CodeNoUser, Message: fmt.Sprintf("there is no user %q", user)}
	}
	f := &frame{Argv: r.Argv, Dir: "/root", Out: "1", Err: "2", Vars: map[string]string{"HOME": "/root", "PATH": "/bin", "USER": "root"}}
	if r.TTY {
		f.Err = "1"
	}
	for _, e := range r.Env {
		name, value, _ := strings.Cut(e, "=")
		f.Vars[name] = value
	}
	if r.Cwd != "" {
		ix, err := m.files.read()
		if err != nil {
			return nil, err
		}
		if f.Dir = path.Clean("/" + r.Cwd); !ix.nodes[f.Dir].Mode.IsDir() {
			return nil, &guest.AgentError{Code: guest.CodeNoDir, Message: fmt.Sprintf("there is no folder %s", r.Cwd)}
		}
	}
	if _, ok := commands[base(r.Argv[0])]; !ok {
		return nil, &guest.AgentError{Code: guest.CodeNoCommand, Message: fmt.Sprintf("%s: not found", r.Argv[0])}
	}
	return f, nil
}

// Kill kills what is left of a command whose own process has ended.
func (h *handler) Kill(ctx context.Context, id string) error {
	if err := h.m.engine.fault(ctx, "kill"); err != nil {
		return err
	}
	n, err := h.m.killGroup(ctx, id)
	if err == nil && n == 0 {
		err = &guest.AgentError{Code: guest.CodeNoExec, Message: fmt.Sprintf("the guest knows no exec %q", id)}
	}
	return err
}

func (h *handler) Freeze(ctx context.Context, limit time.Duration) error {
	m := h.m
	return h.step(ctx, "freeze", func() error {
		m.cpu.setFrozen(true)
		m.kernel.Frozen, m.kernel.ThawAt = true, m.cpu.monotonic()+limit
		m.event("frozen")
		m.thawLater(m.kernel.ThawAt)
		return nil
	})
}

func (h *handler) Thaw(ctx context.Context) error {
	return h.step(ctx, "thaw", func() error { h.m.thaw(); return nil })
}

// thaw lets the workload go on. Precondition: the token is held.
func (m *Machine) thaw() {
	if m.kernel.Frozen {
		m.event("thawed")
	}
	m.kernel.Frozen, m.kernel.ThawAt = false, 0
	m.cpu.setFrozen(false)
}

// thawLater thaws by itself at a monotonic time, should the host not do it.
func (m *Machine) thawLater(at time.Duration) {
	m.spawn(func() {
		for {
			var left time.Duration
			err := m.act(nil, agent, func() error {
				if !m.kernel.Frozen || m.kernel.ThawAt != at {
					return errStopped // another freeze, or none
				}
				if left = at - m.cpu.monotonic(); left <= 0 {
					m.thaw()
				}
				return nil
			})
			if err != nil || left <= 0 {
				return
			}
			t := time.NewTimer(left)
			select {
			case <-t.C:
			case <-m.cpu.ended:
			}
			t.Stop()
		}
	})
}

// Repair does everything or fails, in the order of a real guest: randomness, clock, identity, hooks, thaw.
func (h *handler) Repair(ctx context.Context, r guest.Repair, received time.Time) error {
	m := h.m
	return h.step(ctx, "repair", func() error {
		k := m.kernel
		if len(r.Seed) > 0 {
			if err := m.ram.mix(r.Seed); err != nil {
				return err
			}
			m.unrepaired = false
		}
		if !r.Now.IsZero() {
			m.cpu.setWall(r.Now.Add(time.Since(received)))
		}
		if r.Hostname != "" {
			k.Hostname = r.Hostname
		}
		if r.MAC != "" {
			k.MAC = r.MAC
		}
		if r.Generation != "" {
			k.Generation = r.Generation
		}
		if r.Hooks {
			if err := m.hooks(); err != nil {
				return err
			}
		}
		m.event("repaired")
		if r.Thaw {
			m.thaw()
		}
		return nil
	})
}

// hooks runs the scripts of /etc/flash/hooks.d. They can neither sleep nor read.
func (m *Machine) hooks() error {
	ix, err := m.files.read()
	if err != nil {
		return nil // no disk, no hooks
	}
	for _, name := range below(ix, "/etc/flash/hooks.d") {
		if ix.nodes[name].Mode&fs.ModeType != 0 {
			continue
		}
		r := &record{Group: "hook", InputDone: true, Frames: []*frame{{Argv: []string{"sh", name}, Dir: "/", Out: "1", Err: "2", Vars: map[string]string{}}}}
		p := &process{m: m, rec: r, programs: map[*frame]program{}}
		for r.Exit == nil {
			if wait := p.advance(nil, false); wait.sleep > 0 {
				return fmt.Errorf("hook %s: it sleeps, which the fake guest's hooks can't", name)
			}
		}
		if r.Exit.Code != 0 {
			return fmt.Errorf("hook %s ended with %d: %s", name, r.Exit.Code, r.Err)
		}
	}
	return nil
}

func (h *handler) SyncFS(ctx context.Context) error {
	return h.step(ctx, "sync", func() error { return nil }) // nothing is ever held back
}

func (h *handler) Shutdown(ctx context.Context) (func(), error) {
	return h.m.powerOff, h.step(ctx, "shutdown", func() error { return nil })
}

func (h *handler) CopyIn(ctx context.Context, dir string, tar io.Reader) error {
	if err := h.m.engine.fault(ctx, "copyin"); err != nil {
		return err
	}
	return h.m.unpack(ctx, path.Clean("/"+dir), tar)
}

func (h *handler) CopyOut(ctx context.Context, name string, tar io.Writer) error {
	if err := h.m.engine.fault(ctx, "copyout"); err != nil {
		return err
	}
	return h.m.pack(ctx, path.Clean("/"+name), tar)
}
