package guest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// What the guest remembers of execs.
const (
	keepEnded     = 64
	outputBytes   = 1 << 20 // kept per stream until the host has it; beyond, the command waits
	unreadBytes   = 8 << 20 // kept of ended execs together; the oldest lose theirs
	maxIDBytes    = 128
	maxExecsKnown = 512 // running and ended: their list fits into a frame
)

// execution is one exec the server knows.
//
//	starting ──▶ running ──▶ ended
//	    └──▶ (forgotten: Start failed)
type execution struct {
	request ExecRequest // run's, but for the ID
	argv    []string    // shortened, for listing
	in      *inStream   // nil: /dev/null
	out     *outStream
	err     *outStream
	started chan struct{} // closed when process or failure is set
	process Process
	failure error

	attaching sync.Mutex // both outputs are attached together

	mu       sync.Mutex // guards the rest
	exit     *ExitStatus
	timedOut bool
}

// execTable holds what is running, and the last that have ended.
type execTable struct {
	mu   sync.Mutex // guards the rest
	byID map[string]*execution
	all  []*execution // oldest first
}

// obtain gives the execution with this id, made now if there is none.
func (t *execTable) obtain(r ExecRequest) (e *execution, fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[r.ID]; e != nil {
		return e, false, nil
	}
	if len(t.all) >= maxExecsKnown {
		return nil, false, &AgentError{Code: CodeFailed, Message: fmt.Sprintf("%d commands are running, no more are taken", len(t.all))}
	}
	e = &execution{request: r, argv: shorten(r.Argv), out: newOutStream(outputBytes), err: newOutStream(outputBytes), started: make(chan struct{})}
	if r.Stdin {
		e.in = newInStream(false, nil)
	}
	t.byID[r.ID] = e
	t.all = append(t.all, e)
	return e, true, nil
}

func (t *execTable) find(id string) *execution {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *execTable) remove(gone *execution) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, gone.request.ID)
	for i, e := range t.all {
		if e == gone {
			t.all = append(t.all[:i], t.all[i+1:]...)
			return
		}
	}
}

// trim forgets the oldest ended execs beyond those we keep, and the oldest unread output.
func (t *execTable) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, unread := 0, 0
	kept := len(t.all)
	for i := len(t.all) - 1; i >= 0; i-- {
		e := t.all[i]
		if e.ended() == nil {
			continue
		}
		if ended++; ended > keepEnded {
			delete(t.byID, e.request.ID)
			t.all = append(t.all[:i], t.all[i+1:]...)
			continue
		}
		if unread += e.out.keptBytes() + e.err.keptBytes(); unread > unreadBytes {
			e.out.forget()
			e.err.forget()
		}
	}
	if kept > len(t.all) {
		clear(t.all[len(t.all):kept])
	}
}

func (t *execTable) list() []ExecInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	infos := make([]ExecInfo, 0, len(t.all))
	for _, e := range t.all {
		exit := e.ended()
		infos = append(infos, ExecInfo{ID: e.request.ID, Argv: e.argv, Running: exit == nil, Exit: exit})
	}
	return infos
}

func (e *execution) ended() *ExitStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exit
}

// run starts the command and waits for its end.
func (e *execution) run(s *Server) {
	o := Outputs{Stdout: e.out, Stderr: e.err}
	if e.in != nil {
		o.Stdin = e.in
	}
	e.process, e.failure = s.handler.Start(e.request, o)
	if e.failure != nil {
		s.execs.remove(e)
		close(e.started)
		return
	}
	close(e.started)
	e.request.Argv, e.request.Env = nil, nil
	timer := e.killAfter(e.request.Timeout)
	status := e.process.Wait()
	timer()
	e.mu.Lock()
	status.TimedOut = e.timedOut
	e.exit = &status
	e.mu.Unlock()
	e.out.end()
	e.err.end()
	if e.in != nil {
		e.in.fail(errEnded)
	}
	s.execs.trim()
}

// killAfter kills everything that came of the command after a time. The function it gives ends that, or waits until all
// is dead.
func (e *execution) killAfter(d time.Duration) (stop func()) {
	if d <= 0 {
		return func() {}
	}
	dead := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(dead)
		e.mu.Lock()
		e.timedOut = true
		e.mu.Unlock()
		e.out.kill()
		e.err.kill()
		e.process.Kill(context.Background()) // what it can't kill now, nobody can
	})
	return func() {
		if !timer.Stop() {
			<-dead
		}
	}
}

var errEnded = fmt.Errorf("the command has ended")

// exec finds or starts a command and waits for it.
func (r *request) exec(b execBody) (func() (any, error), error) {
	if !validID(b.ID) {
		return nil, &AgentError{Code: CodeInvalid, Message: fmt.Sprintf("%q is no id of an exec: letters, digits, '.', '_' and '-', at most %d", b.ID, maxIDBytes)}
	}
	if len(b.Argv) == 0 {
		return nil, &AgentError{Code: CodeInvalid, Message: "there is no command to run"}
	}
	e, fresh, err := r.session.server.execs.obtain(b.ExecRequest)
	if err != nil {
		return nil, err
	}
	r.takeInput(e)
	if e.in != nil && b.NoInput && fresh {
		e.in.finish(0)
	}
	if fresh {
		go e.run(r.session.server)
	}
	return func() (any, error) {
		if b.Thaw && !fresh { // else Start does it
			if err := r.session.server.handler.Thaw(r.ctx); err != nil {
				return nil, err
			}
		}
		return r.await(e, 0, 0)
	}, nil
}

func (r *request) attach(b attachBody) (func() (any, error), error) {
	e := r.session.server.execs.find(b.ID)
	if e == nil {
		return nil, noExec(b.ID)
	}
	r.takeInput(e)
	return func() (any, error) { return r.await(e, b.Stdout, b.Stderr) }, nil
}

func (r *request) takeInput(e *execution) {
	if e.in != nil {
		e.in.rebase(r.grant)
		r.in = e.in
	}
}

// await sends a command's output from the given offsets on and then how it ended.
func (r *request) await(e *execution, fromOut, fromErr int64) (any, error) {
	ss := r.session
	select {
	case <-e.started:
	case <-r.ctx.Done():
		return nil, &AgentError{Code: CodeCanceled, Message: "the caller went away"}
	}
	if e.failure != nil {
		return nil, e.failure
	}
	var reply execReply
	if err := r.attachOutputs(e, &reply, fromOut, fromErr); err != nil {
		return nil, err
	}
	var sentOut, sentErr bool
	reply.Stdout.To, sentOut = e.out.waitSent(r.ctx, ss.link, ss.generation, r.id)
	reply.Stderr.To, sentErr = e.err.waitSent(r.ctx, ss.link, ss.generation, r.id)
	if !sentOut || !sentErr {
		e.out.detach(ss.link, ss.generation, r.id)
		e.err.detach(ss.link, ss.generation, r.id)
		if r.ctx.Err() != nil {
			return nil, &AgentError{Code: CodeCanceled, Message: "the caller went away"}
		}
		return nil, &AgentError{Code: CodeTakenOver, Message: "another caller has attached to the command"}
	}
	reply.Exit = *e.ended()
	return reply, nil
}

func (r *request) attachOutputs(e *execution, reply *execReply, fromOut, fromErr int64) (err error) {
	ss := r.session
	ss.mu.Lock()
	r.outs[streamOut], r.outs[streamErr] = e.out, e.err
	ss.mu.Unlock()
	e.attaching.Lock()
	defer e.attaching.Unlock()
	if reply.Stdout.From, err = e.out.attach(ss.link, ss.generation, r.id, streamOut, fromOut); err != nil {
		return err
	}
	if reply.Stderr.From, err = e.err.attach(ss.link, ss.generation, r.id, streamErr, fromErr); err != nil {
		e.out.detach(ss.link, ss.generation, r.id)
	}
	return err
}

// kill kills everything that came of an exec, be it remembered or not.
func (s *Server) kill(ctx context.Context, id string) error {
	if !validID(id) {
		return noExec(id)
	}
	e := s.execs.find(id)
	if e == nil {
		return s.handler.Kill(ctx, id)
	}
	e.out.kill()
	e.err.kill()
	return s.withProcess(id, func(p Process) error { return p.Kill(ctx) })
}

// withProcess calls f with a started command.
func (s *Server) withProcess(id string, f func(Process) error) error {
	e := s.execs.find(id)
	if e == nil {
		return noExec(id)
	}
	<-e.started
	if e.failure != nil {
		return noExec(id)
	}
	return f(e.process)
}

func noExec(id string) error {
	return &AgentError{Code: CodeNoExec, Message: fmt.Sprintf("the guest knows no exec %q", id)}
}

// shorten cuts arguments so that a list of all execs fits into a frame.
func shorten(argv []string) []string {
	const maxBytes, maxArgs = 80, 8
	var short []string
	for i, a := range argv {
		if i == maxArgs {
			return append(short, "…")
		}
		if len(a) > maxBytes {
			a = strings.ToValidUTF8(a[:maxBytes], "") + "…"
		}
		short = append(short, a)
	}
	return short
}

// validID tells whether an id can be the name of a cgroup.
func validID(id string) bool {
	if id == "" || len(id) > maxIDBytes || id[0] == '.' || id[0] == '-' {
		return false
	}
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
