package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// process is a started command.
type process struct {
	agent    *agent
	id       string
	pid      int
	ended    <-chan syscall.WaitStatus
	pumps    []*pump
	terminal int // our end, owned by the pump; -1 without
}

// Start starts a command in a group of its own.
func (a *agent) Start(r guest.ExecRequest, o guest.Outputs) (guest.Process, error) {
	if r.Thaw {
		if err := a.freezer.thaw(context.Background()); err != nil {
			return nil, err
		}
	}
	c, err := resolve(r, a.accounts)
	if err != nil {
		return nil, err
	}
	p := &process{agent: a, id: r.ID, terminal: -1}
	s, err := openStdio(r, c.who, a.null)
	if err != nil {
		return nil, err
	}
	defer s.closeTheirs()
	err = a.freezer.letStart(func() error { return p.start(c, s) })
	if err != nil {
		s.closeOurs()
		a.groups.remove(r.ID)
		return nil, err
	}
	return p, p.connect(s, o)
}

func (p *process) start(c command, s *stdio) error {
	group, err := p.agent.groups.open(p.id)
	if err != nil {
		return err
	}
	defer unix.Close(group)
	attr := &syscall.ProcAttr{Dir: c.cwd, Env: c.env, Files: s.theirs(), Sys: &syscall.SysProcAttr{
		Setsid: true, Setctty: s.terminal, Ctty: 0, UseCgroupFD: true, CgroupFD: group,
	}}
	if !p.agent.isSelf(c.who) { // else the kernel is spared three calls that change nothing
		attr.Sys.Credential = &syscall.Credential{Uid: c.who.uid, Gid: c.who.gid, Groups: c.who.groups}
	}
	p.pid, p.ended, err = p.agent.reaper.start(c.path, c.argv, attr)
	if err == unix.ENOSYS || err == unix.EINVAL || err == unix.EOPNOTSUPP { // before Linux 5.7: not born inside, but put there at once
		attr.Sys.UseCgroupFD = false
		if p.pid, p.ended, err = p.agent.reaper.start(c.path, c.argv, attr); err == nil {
			err = p.agent.groups.join(p.id, p.pid)
		}
	}
	if err != nil {
		return startError(c, err)
	}
	return nil
}

// connect starts what moves bytes. Should it fail, the command is killed.
func (p *process) connect(s *stdio, o guest.Outputs) error {
	err := p.connectOutputs(s, o)
	if err != nil {
		p.agent.groups.kill(context.Background(), p.id)
		return fmt.Errorf("connect %s: %w", p.id, err)
	}
	if s.in >= 0 {
		in := s.in
		if s.terminal {
			// A descriptor of its own: it is closed at another time than the one that is read.
			if in, err = unix.FcntlInt(uintptr(s.out), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				return err
			}
		}
		if err := unix.SetNonblock(in, true); err != nil {
			return err
		}
		go feed(os.NewFile(uintptr(in), "input"), o.Stdin, s.terminal)
	}
	return nil
}

func (p *process) connectOutputs(s *stdio, o guest.Outputs) error {
	out, err := newPump(s.out, o.Stdout, s.terminal)
	if err != nil {
		return err
	}
	p.pumps = []*pump{out}
	if s.terminal {
		p.terminal = s.out
		return nil
	}
	errs, err := newPump(s.err, o.Stderr, false)
	if err == nil {
		p.pumps = append(p.pumps, errs)
	}
	return err
}

// endOfInput is what a terminal's line discipline takes for the end of a file.
const endOfInput = 4 // ^D

// feed moves the host's bytes into a command's input. What the command doesn't want is thrown away.
func feed(to *os.File, from io.Reader, terminal bool) {
	defer to.Close()
	_, err := io.Copy(&tolerant{w: to}, from)
	if err == nil && terminal {
		to.Write([]byte{endOfInput})
	}
}

// tolerant is a writer that swallows everything after its first error.
type tolerant struct {
	w    io.Writer
	deaf bool
}

func (t *tolerant) Write(p []byte) (int, error) {
	if !t.deaf {
		_, err := t.w.Write(p)
		t.deaf = err != nil
	}
	return len(p), nil
}

// Wait waits for the command's own process and for what had been written until then.
func (p *process) Wait() guest.ExitStatus {
	status := <-p.ended
	for _, pump := range p.pumps {
		pump.drain()
	}
	p.agent.chores.later(p.tidyUp)
	if status.Signaled() {
		return guest.ExitStatus{Code: 128 + int(status.Signal()), Signal: signalName(status.Signal())}
	}
	return guest.ExitStatus{Code: status.ExitStatus()}
}

// tidyUp does what nobody waits for.
func (p *process) tidyUp() {
	g := p.agent.groups
	gone := g.remove(p.id)
	g.makeSpare()
	p.agent.collector.collect()
	if !gone {
		go g.removeWhenEmpty(p.id)
	}
}

// Signal sends a signal to the command's process group.
func (p *process) Signal(name string) error {
	s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if s == 0 {
		return &guest.AgentError{Code: guest.CodeInvalid, Message: fmt.Sprintf("there is no signal %q", name)}
	}
	return p.agent.reaper.signal(p.pid, s)
}

// Resize sets the terminal's size; without one it does nothing.
func (p *process) Resize(w guest.WindowSize) error {
	if p.terminal < 0 {
		return nil
	}
	return p.pumps[0].control(func(fd int) error { return resize(fd, w) })
}

// Kill kills everything that came of the command.
func (p *process) Kill(ctx context.Context) error { return p.agent.groups.kill(ctx, p.id) }

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return fmt.Sprintf("%d", int(s))
}
