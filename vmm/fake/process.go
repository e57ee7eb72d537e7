package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"flash/vmm/guest"
)

// process runs one record. It may be made anew at any moment from the record alone, which is what a restore does.
type process struct {
	m    *Machine
	rec  *record       // guarded by the CPU's token
	out  guest.Outputs // nil streams: a background job
	done chan struct{} // closed when rec.Exit is set and everything was written to out

	input chan chunk
	read  sync.Once // starts the reader of out.Stdin

	mu     sync.Mutex    // guards the rest
	signal string        // it is to die of
	killed chan struct{} // closed when signal is set

	// Guarded by the CPU's token, like rec.
	programs map[*frame]program
	listens  int // port, or 0
	says     string
}

type chunk struct {
	bytes []byte
	end   bool
}

func (m *Machine) newProcess(r *record, o guest.Outputs) *process {
	p := &process{m: m, rec: r, out: o, done: make(chan struct{}), killed: make(chan struct{}), input: make(chan chunk),
		programs: map[*frame]program{}}
	m.procs[r] = p
	return p
}

// run takes steps until the command has ended.
func (p *process) run() {
	defer close(p.done)
	var out, errOut []byte
	saidOut, saidErr := 0, 0 // how much of rec's output the outputs have
	var wait verdict
	for {
		var in chunk
		if wait.input {
			p.read.Do(func() { p.m.spawn(p.readInput) })
			select {
			case in = <-p.input:
			case <-p.killed:
			case <-p.m.cpu.ended:
				return
			}
		}
		who := workload
		if closed(p.killed) {
			who = agent // a frozen process can be killed
		}
		ended := false
		err := p.m.act(p.stepEnd(who), who, func() error {
			r := p.rec
			r.InputDone = r.InputDone || in.end
			if r.Exit == nil {
				wait = p.advance(in.bytes, who == agent)
			}
			out, errOut, ended = r.Out[min(saidOut, len(r.Out)):], r.Err[min(saidErr, len(r.Err)):], r.Exit != nil
			saidOut, saidErr = len(r.Out), len(r.Err)
			if ended {
				p.m.reap(p)
			}
			return nil
		})
		if err != nil {
			if closed(p.m.cpu.ended) {
				return
			}
			wait.input = false
			continue // killed while it waited for its turn
		}
		if p.out.Stdout != nil {
			_, _ = p.out.Stdout.Write(out) // a full ring waits for the host; it can't fail
			_, _ = p.out.Stderr.Write(errOut)
		}
		if ended {
			return
		}
		if wait.sleep > 0 {
			t := time.NewTimer(wait.sleep)
			select {
			case <-t.C:
			case <-p.killed:
			case <-p.m.cpu.ended:
			}
			t.Stop()
		}
	}
}

// stepEnd is what makes a step not worth waiting for.
func (p *process) stepEnd(who mode) <-chan struct{} {
	if who == agent {
		return nil
	}
	return p.killed
}

func (p *process) readInput() {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.out.Stdin.Read(buf)
		c := chunk{append([]byte(nil), buf[:n]...), err != nil}
		select {
		case p.input <- c:
		case <-p.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// Wait is guest.Process's.
func (p *process) Wait() guest.ExitStatus {
	<-p.done
	p.m.cpu.token <- struct{}{}
	defer p.m.cpu.give()
	if p.rec.Exit == nil { // the machine has ended; nobody will hear it
		return guest.ExitStatus{Code: 128 + 9, Signal: "KILL"}
	}
	return *p.rec.Exit
}

var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "TERM": 15}

// Signal makes the process die of it, as if it had no handler. Others are ignored.
func (p *process) Signal(name string) error {
	if _, deadly := signals[name]; !deadly {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signal == "" {
		p.signal = name
		close(p.killed)
	}
	return nil
}

func (p *process) Resize(guest.WindowSize) error { return nil }

// Kill ends the process and the background jobs that came of it.
func (p *process) Kill(ctx context.Context) error {
	_, err := p.m.killGroup(ctx, p.rec.Group)
	return err
}

// killGroup ends all processes of a group and tells how many there were.
func (m *Machine) killGroup(ctx context.Context, group string) (int, error) {
	var members []*process
	err := m.act(ctx.Done(), agent, func() error {
		for r, p := range m.procs {
			if r.Group == group && r.Exit == nil {
				members = append(members, p)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, p := range members {
		if err := p.Signal("KILL"); err != nil {
			return 0, err
		}
	}
	for _, p := range members {
		select {
		case <-p.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return len(members), nil
}

const keptRecords = 32 // ended execs whose records stay in memory
const keptLogBytes = 256 << 10

// reap forgets what nobody will ask for again. Precondition: the token is held.
func (m *Machine) reap(p *process) {
	delete(m.procs, p.rec)
	k := m.kernel
	ended, logs := 0, 0
	var kept []*record
	for i := len(k.Processes) - 1; i >= 0; i-- { // newest first
		r := k.Processes[i]
		if r.Exit != nil {
			ended++
			if r.Group != r.Request.ID || ended > keptRecords {
				continue
			}
			if logs += len(r.Out) + len(r.Err); logs > keptLogBytes {
				r.Out, r.Err = nil, nil
			}
		}
		kept = append(kept, r)
	}
	k.Processes = k.Processes[:0]
	for i := len(kept) - 1; i >= 0; i-- {
		k.Processes = append(k.Processes, kept[i])
	}
}

// adopt makes the commands go on that the memory remembers, and the server know them: it is told by a host of its own, in
// a session of generation 0, before the real one can speak. Preconditions: the token is held; the machine is paused.
func (m *Machine) adopt(ctx context.Context) error {
	adopting := map[string]*process{}
	started := 0
	for _, r := range m.kernel.Processes {
		p := m.newProcess(r, guest.Outputs{})
		if r.Group == r.Request.ID {
			adopting[r.Request.ID] = p
		} else {
			m.spawn(p.run)
		}
	}
	if len(adopting) == 0 {
		return nil
	}
	m.mu.Lock()
	m.adopting = maps.Clone(adopting)
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	host, inside := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- m.server.Serve(inside) }()
	client, _, err := guest.Connect(ctx, host, 0)
	if err != nil {
		return fmt.Errorf("adopt %d commands: %w", len(m.adopting), err)
	}
	open, never := io.Pipe() // standard input stays open for whoever attaches
	for _, r := range m.kernel.Processes {
		if adopting[r.Request.ID] == nil {
			continue
		}
		request := r.Request // its timeout begins anew
		request.KeepOnCancel = true
		m.spawn(func() { _, _ = client.Exec(m.ctx, request, guest.Streams{Stdin: open}) })
		for len(startedIDs(ctx, client)) <= started && ctx.Err() == nil {
		}
		started++
	}
	err = errors.Join(ctx.Err(), client.Close(), never.Close(), <-served)
	return err
}

// adoptee gives the process that goes on under an ID, once.
func (m *Machine) adoptee(id string) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.adopting[id]
	delete(m.adopting, id)
	return p
}

func startedIDs(ctx context.Context, c *guest.Client) []guest.ExecInfo {
	infos, err := c.Execs(ctx)
	if err != nil {
		return nil
	}
	return infos
}

// resolve makes a path absolute.
func (f *frame) resolve(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Join(f.Dir, name)
}
