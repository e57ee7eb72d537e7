package fake

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"flash/vmm/guest"
)

// frame is one script being run, or one command. Frames of a process are a stack.
type frame struct {
	Argv   []string          `json:"argv,omitempty"`   // a single command; else
	Source string            `json:"source,omitempty"` // a script
	PC     int               `json:"pc"`               // the next statement
	Only   bool              `json:"only,omitempty"`   // a background job: just that statement
	Last   int               `json:"last"`             // $?
	Dir    string            `json:"dir"`
	Vars   map[string]string `json:"vars"`
	Strict bool              `json:"strict,omitempty"` // set -e
	Out    string            `json:"out"`              // where it writes to: "1", "2", "/dev/null" or a file
	Err    string            `json:"err"`
	Opened *opened           `json:"opened,omitempty"` // of the statement being run, when it takes more than a step
}

// opened is where a statement reads from and writes to, its redirections done.
type opened struct {
	In  string `json:"in"` // "0" or a file
	Out string `json:"out"`
	Err string `json:"err"`
}

// verdict is what a process needs before its next step.
type verdict struct {
	sleep time.Duration
	input bool
}

// What a command gives instead of an exit status.
const (
	wantsInput = -1 - iota // again when there is more
	asleep                 // again at WakeAt
	called                 // a frame was pushed; its status is the command's
	left                   // the frame ends with Last
)

// limits of a process: a guest that goes beyond them is out of memory.
const maxFrames = 32

// advance runs one command, and all that costs nothing before it. dying: the process was sent a signal.
// Precondition: the token is held.
func (p *process) advance(input []byte, dying bool) verdict {
	r := p.rec
	if dying {
		p.mu.Lock()
		name := p.signal
		p.mu.Unlock()
		r.Exit = &guest.ExitStatus{Code: 128 + signals[name], Signal: name}
		return verdict{}
	}
	for r.Exit == nil {
		f := r.Frames[len(r.Frames)-1]
		prog, err := p.program(f)
		if err != nil {
			p.put(f.Err, []byte(err.Error()+"\n"))
			f.Last = 2
			p.pop()
			continue
		}
		if f.PC >= len(prog) {
			p.pop()
			continue
		}
		s := prog[f.PC]
		if !f.Only && (s.join == "&&" && f.Last != 0 || s.join == "||" && f.Last == 0) {
			f.PC++
			continue
		}
		status, wait := p.statement(f, s, input)
		switch {
		case status >= 0:
			p.finish(f, status)
		case status == left:
			f.PC = len(prog)
			f.Only = false
		}
		p.limit()
		return wait
	}
	return verdict{}
}

// finish ends a frame's statement.
func (p *process) finish(f *frame, status int) {
	f.Last, f.Opened = status, nil
	f.PC++
	if f.Only {
		f.PC, f.Only = 1<<30, false
	}
	if f.Strict && status != 0 {
		if prog, err := p.program(f); err == nil && f.PC < len(prog) && (prog[f.PC].join == "||" || prog[f.PC].join == "&&") {
			return // tested by what follows
		}
		f.PC = 1 << 30
	}
}

// pop ends the innermost frame: its status is that of the command that called it, or the process's.
func (p *process) pop() {
	r := p.rec
	f := r.Frames[len(r.Frames)-1]
	delete(p.programs, f)
	r.Frames = r.Frames[:len(r.Frames)-1]
	if len(r.Frames) == 0 {
		r.Exit = &guest.ExitStatus{Code: f.Last & 255}
		return
	}
	p.finish(r.Frames[len(r.Frames)-1], f.Last)
}

func (p *process) program(f *frame) (program, error) {
	if prog, ok := p.programs[f]; ok {
		return prog, nil
	}
	var prog program
	if f.Argv != nil {
		var s statement
		for _, a := range f.Argv {
			s.words = append(s.words, word{{text: a}})
		}
		prog = program{s}
	} else {
		var err error
		if prog, err = parse(f.Source); err != nil {
			return nil, err
		}
	}
	p.programs[f] = prog
	return prog, nil
}

// statement runs one command with its redirections.
func (p *process) statement(f *frame, s statement, input []byte) (int, verdict) {
	if s.background && !f.Only {
		p.background(f)
		return 0, verdict{}
	}
	lookup := func(name string) string { return p.variable(f, name) }
	for _, w := range s.assign {
		name, value, _ := strings.Cut(w.expand(lookup), "=")
		f.Vars[name] = value
	}
	if f.Opened == nil {
		o, err := p.open(f, s.redirects, lookup)
		if err != nil {
			p.put(f.Err, []byte("sh: "+err.Error()+"\n"))
			return 1, verdict{}
		}
		f.Opened = o
	}
	if len(s.words) == 0 {
		return 0, verdict{}
	}
	c := &call{m: p.m, p: p, f: f, in: input, inDone: p.rec.InputDone}
	for _, w := range s.words {
		c.args = append(c.args, w.expand(lookup))
	}
	o := f.Opened
	if o.In != "0" {
		data, err := c.readPath(o.In)
		if err != nil {
			p.put(o.Err, []byte("sh: "+err.Error()+"\n"))
			return 1, verdict{}
		}
		c.in, c.inDone = data, true
	}
	run, ok := commands[base(c.args[0])]
	if !ok {
		p.put(o.Err, fmt.Appendf(nil, "sh: %s: not found\n", c.args[0]))
		return 127, verdict{}
	}
	status := run(c)
	if err := p.put(o.Out, c.out.Bytes()); err != nil && status >= 0 {
		status = 1
		c.err.WriteString(base(c.args[0]) + ": " + err.Error() + "\n")
	}
	p.put(o.Err, c.err.Bytes())
	return status, verdict{sleep: c.sleep, input: status == wantsInput}
}

func (p *process) variable(f *frame, name string) string {
	if name == "?" {
		return strconv.Itoa(f.Last)
	}
	if name == "PWD" {
		return f.Dir
	}
	return f.Vars[name]
}

// background makes a job of the statement at f.PC: a process of the same group whose output goes nowhere but into files.
func (p *process) background(f *frame) {
	k := p.m.kernel
	job := *f
	job.Vars = maps.Clone(f.Vars)
	job.Only, job.Last, job.Opened = true, 0, nil
	r := &record{Group: p.rec.Group, Frames: []*frame{&job}, InputDone: true}
	r.Request.ID = fmt.Sprintf("%s&%d", p.rec.Group, p.m.cpu.steps)
	r.Request.Argv = []string{"sh"}
	k.Processes = append(k.Processes, r)
	p.m.spawn(p.m.newProcess(r, guest.Outputs{}).run)
}

// limit kills a process that remembers more than the guest has room for, as the kernel would.
func (p *process) limit() {
	r := p.rec
	// JSON takes 4/3 of the bytes; half of the kernel's room is for the others.
	if uint64(len(r.Out)+len(r.Err))*4/3 > p.m.ram.kernelEnd()/2 || len(r.Frames) > maxFrames {
		r.Exit = &guest.ExitStatus{Code: 128 + signals["KILL"], Signal: "KILL"}
		p.m.console(fmt.Sprintf("Out of memory: killed %q", r.Request.Argv))
	}
}
