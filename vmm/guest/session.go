package guest

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"
)

const partingLimit = 2 * time.Second // for the last answer to leave before the machine goes

// session is the guest's side of one session.
type session struct {
	server     *Server
	link       *link
	generation uint64
	nonce      string
	ctx        context.Context // cancelled by end
	cancel     context.CancelFunc

	mu       sync.Mutex // guards the rest
	requests map[uint32]*request
}

// request is one the host waits for. Its streams are set before the next frame is taken.
type request struct {
	session *session
	id      uint32
	op      byte
	ctx     context.Context
	cancel  context.CancelFunc
	in      *inStream // bytes from the host; an exec's survives the request

	outs     [3]*outStream // guarded by session.mu, like answered
	answered bool
	parting  func() // to be called when the answer has left
}

func newSession(s *Server, l *link, generation uint64, nonce string) *session {
	ss := &session{server: s, link: l, generation: generation, nonce: nonce, requests: map[uint32]*request{}}
	ss.ctx, ss.cancel = context.WithCancel(context.Background())
	return ss
}

// end cancels every request. What they still answer is of an old generation, which the host drops.
func (ss *session) end() { ss.cancel() }

func (ss *session) take(f frame) {
	switch f.Type {
	case typeRequest:
		ss.begin(f)
		return
	case typeHold:
		ss.link.hold(frame{Type: typeHeld, Generation: ss.generation, ID: f.ID})
		return
	case typeRelease:
		ss.link.release(f.ID, nil)
		return
	}
	ss.mu.Lock()
	r := ss.requests[f.ID]
	ss.mu.Unlock()
	if r == nil {
		return // answered already
	}
	switch f.Type {
	case typeCancel:
		r.cancel()
	case typeData, typeEnd:
		off, ok := position(f.Body)
		if !ok || r.in == nil {
			return
		}
		var err error
		if f.Type == typeEnd {
			err = r.in.finish(off)
		} else {
			err = r.in.arrive(off, f.Body[positionBytes:])
		}
		if err != nil {
			r.in.fail(err)
		}
	case typeCredit:
		r.credit(f)
	}
}

func (r *request) credit(f frame) {
	ss := r.session
	consumed, ok := position(f.Body)
	if !ok || f.Sub > streamErr {
		return
	}
	limit, ok := position(f.Body[positionBytes:])
	ss.mu.Lock()
	out := r.outs[f.Sub]
	ss.mu.Unlock()
	if !ok || out == nil {
		return
	}
	out.credit(ss.link, ss.generation, r.id, consumed, limit)
	ss.mu.Lock()
	if r.answered && !r.unread() {
		delete(ss.requests, r.id)
	}
	ss.mu.Unlock()
}

// unread tells whether the host still has to consume output. session.mu is held.
func (r *request) unread() bool {
	for _, out := range r.outs {
		if out != nil && out.keptBytes() > 0 {
			return true
		}
	}
	return false
}

// begin starts a request's goroutine after its streams are known.
func (ss *session) begin(f frame) {
	r := &request{session: ss, id: f.ID, op: f.Sub}
	r.ctx, r.cancel = context.WithCancel(ss.ctx)
	ss.mu.Lock()
	ss.requests[r.id] = r
	ss.mu.Unlock()
	work, err := r.prepare(f.Body)
	if err != nil {
		r.respond(nil, err)
		return
	}
	go func() {
		reply, err := work()
		r.respond(reply, err)
		if r.parting != nil && err == nil {
			ss.link.flush(partingLimit)
			r.parting()
		}
	}()
}

// respond answers, and forgets the request unless the host still has to give credit for an exec's output.
func (r *request) respond(reply any, err error) {
	f := frame{Type: typeResponse, Sub: outcomeDone, Generation: r.session.generation, ID: r.id}
	if err == nil {
		f.Body, err = encodeBody(reply)
	}
	if err != nil {
		f.Sub = outcomeFailed
		e := agentError(err)
		e.Message = e.Message[:min(len(e.Message), 64<<10)]
		f.Body, _ = encodeBody(e)
	}
	ss := r.session
	ss.mu.Lock()
	r.answered = true
	if err != nil || !r.unread() {
		delete(ss.requests, r.id)
	}
	ss.mu.Unlock()
	if ss.ctx.Err() == nil {
		ss.link.send(f)
	}
	r.cancel()
}

// decode reads a request's body that is JSON.
func decode[T any](body []byte) (v T, err error) {
	err = json.Unmarshal(body, &v)
	return readable(v, err)
}

// readable says of a request what is wrong with it.
func readable[T any](v T, err error) (T, error) {
	if err != nil {
		err = &AgentError{Code: CodeInvalid, Message: "the request can't be read: " + err.Error()}
	}
	return v, err
}

// prepare decodes a request and makes its streams, without waiting, and gives what remains to be done.
func (r *request) prepare(body []byte) (work func() (any, error), err error) {
	h := r.session.server.handler
	arrived := time.Now()
	switch r.op {
	case opExec:
		b, err := readable(decodeExec(body))
		if err != nil {
			return nil, err
		}
		return r.exec(b)
	case opAttach:
		b, err := decode[attachBody](body)
		if err != nil {
			return nil, err
		}
		return r.attach(b)
	case opExecs:
		return func() (any, error) { return r.session.server.execs.list(), nil }, nil
	case opKill:
		b, err := decode[idBody](body)
		return func() (any, error) { return nil, r.session.server.kill(r.ctx, b.ID) }, err
	case opSignal:
		b, err := decode[signalBody](body)
		return func() (any, error) {
			return nil, r.session.server.withProcess(b.ID, func(p Process) error { return p.Signal(b.Name) })
		}, err
	case opResize:
		b, err := decode[resizeBody](body)
		return func() (any, error) {
			return nil, r.session.server.withProcess(b.ID, func(p Process) error { return p.Resize(b.WindowSize) })
		}, err
	case opFreeze:
		b, err := readable(decodeFreeze(body))
		return func() (any, error) { return nil, h.Freeze(r.ctx, b.Limit) }, err
	case opThaw:
		return func() (any, error) { return nil, h.Thaw(r.ctx) }, nil
	case opRepair:
		b, err := readable(decodeRepair(body))
		return func() (any, error) { return nil, h.Repair(r.ctx, b, arrived) }, err
	case opCopyIn:
		b, err := decode[pathBody](body)
		r.in = newInStream(false, r.grant)
		return func() (any, error) { return nil, r.copyIn(b.Path) }, err
	case opCopyOut:
		b, err := decode[pathBody](body)
		return func() (any, error) { return r.copyOut(b.Path) }, err
	case opSync:
		return func() (any, error) { return nil, h.SyncFS(r.ctx) }, nil
	case opShutdown:
		return r.shutdown, nil
	}
	return nil, &AgentError{Code: CodeInvalid, Message: "this agent knows no such operation"}
}

// grant tells the host what has been consumed of the stream it sends.
func (r *request) grant(consumed, limit uint64) {
	r.session.link.send(creditFrame(r.session.generation, r.id, streamIn, consumed, limit))
}

func (r *request) copyIn(dir string) error {
	stop := context.AfterFunc(r.ctx, func() { r.in.fail(&AgentError{Code: CodeCanceled, Message: "the host went away"}) })
	defer stop()
	if err := r.session.server.handler.CopyIn(r.ctx, dir, r.in); err != nil {
		return err
	}
	return r.in.copyTo(nil) // padding, and whatever follows the archive
}

func (r *request) copyOut(path string) (any, error) {
	ss := r.session
	out := newOutStream(windowBytes)
	out.attach(ss.link, ss.generation, r.id, streamOut, 0)
	ss.mu.Lock()
	r.outs[streamOut] = out
	ss.mu.Unlock()
	stop := context.AfterFunc(r.ctx, out.end) // unblocks a write
	defer stop()
	defer func() {
		ss.mu.Lock()
		r.outs[streamOut] = nil // nobody attaches to a copy
		ss.mu.Unlock()
	}()
	if err := ss.server.handler.CopyOut(r.ctx, path, cancelableWriter{r.ctx, out}); err != nil {
		return nil, err
	}
	out.end()
	n, ok := out.waitSent(r.ctx, ss.link, ss.generation, r.id)
	if !ok {
		return nil, &AgentError{Code: CodeCanceled, Message: "the host went away"}
	}
	return copyReply{Bytes: n}, nil
}

// cancelableWriter makes writes fail when nobody wants them.
type cancelableWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c cancelableWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// shutdown answers before the machine goes away.
func (r *request) shutdown() (any, error) {
	now, err := r.session.server.handler.Shutdown(r.ctx)
	if err != nil {
		return nil, err
	}
	r.parting = now
	return nil, nil
}
