package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"flash/vmm/guest"
)

// run is a command whose caller named it, by a request id or the command's own. The same name again takes no second
// checkpoint and starts nothing: it is told how the command goes on, or how it ended.
//
//	obtained ──start──▶ started ──end──▶ ended      One that ends before it has started is forgotten: it may be tried again.
type run struct {
	key     string
	started chan struct{} // closed when it has started, or won't; out's checkpoint is set then
	done    chan struct{} // closed when the rest is set
	record  sync.Once     // how it ended is written down by whoever hears of it first

	out       ExecResult
	err       error
	neverRan  bool
	forgetsAt time.Time // guarded by runs.mu; zero until done
}

// runs holds the named commands of all VMs, and those that have ended for as long as answers are kept. The guest knows its
// commands too, but not after a rewind.
type runs struct {
	now func() time.Time

	mu    sync.Mutex // guards the rest
	known map[string]*run
}

// obtain gives the run of this name; first says that the caller is to run it.
func (rs *runs) obtain(vm, name string) (one *run, first bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key, old := range rs.known {
		if !old.forgetsAt.IsZero() && rs.now().After(old.forgetsAt) {
			delete(rs.known, key)
		}
	}
	key := vm + " " + name
	if one := rs.known[key]; one != nil {
		return one, false
	}
	one = &run{key: key, started: make(chan struct{}), done: make(chan struct{})}
	rs.known[key] = one
	return one, true
}

// start says that from now on it can't be tried again. A nil run has no name, and nobody asks.
func (rs *runs) start(one *run, out ExecResult) {
	if one == nil {
		return
	}
	if out.Checkpoint != nil {
		c := *out.Checkpoint // ours to read when others write theirs
		out.Checkpoint = &c
	}
	one.out = out
	close(one.started)
}

func (rs *runs) end(one *run, out ExecResult, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	select {
	case <-one.started:
		one.out.ExitStatus, one.err = out.ExitStatus, err // read by others only after done
		one.forgetsAt = rs.now().Add(answerKept)
	default:
		one.err, one.neverRan = err, true
		delete(rs.known, one.key)
		close(one.started)
	}
	close(one.done)
}

// joinInterval is how often it is asked whether a command that somebody else starts is there yet.
const joinInterval = 20 * time.Millisecond

// join waits for the end of a command that somebody else has started under this name.
func (h *Host) join(ctx context.Context, v *vm, one *run, r ExecRequest, s guest.Streams) (ExecResult, error) {
	tick := time.NewTicker(joinInterval)
	defer tick.Stop()
	canceled := func() (ExecResult, error) {
		return ExecResult{ExecID: r.Command.ID}, Errorf(CodeCanceled, "ask again with the same request id", "the first request with this id is still running: %w", ctx.Err())
	}
	select {
	case <-one.started:
	case <-ctx.Done():
		return canceled()
	}
	for {
		ended := isClosed(one.done)
		if ended && one.neverRan {
			return ExecResult{}, one.err
		}
		g, err := h.need(v, "exec")
		if err == nil {
			var exit guest.ExitStatus
			if exit, err = g.client.AttachExec(ctx, r.Command.ID, s); err == nil {
				out := one.answer(exit)
				one.record.Do(func() { h.recordExec(ctx, v, r.Command, out) })
				return out, nil
			}
			if !errors.Is(err, guest.ErrNoExec) {
				return ExecResult{ExecID: r.Command.ID}, h.explainExec(ctx, g, r, true, err)
			}
		}
		if ended { // the guest was rewound, has forgotten it, or is gone
			return one.answer(one.out.ExitStatus), one.err
		}
		select { // it isn't there yet
		case <-one.done:
		case <-tick.C:
		case <-ctx.Done():
			return canceled()
		}
	}
}

// answer is the result for one that has joined.
func (one *run) answer(exit guest.ExitStatus) ExecResult {
	out := ExecResult{ExitStatus: exit, ExecID: one.out.ExecID}
	if one.out.Checkpoint != nil {
		c := *one.out.Checkpoint
		c.ExitCode = &out.Code
		out.Checkpoint = &c
	}
	return out
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
