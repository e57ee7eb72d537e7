package guest

import (
	"io"
	"slices"
	"sync"
	"time"
)

// link is the writing half of one side: a single goroutine writes control frames first, then takes turns among the
// streams that have bytes and credit, one frame each.
//
//	            hold(id)                  written
//	flowing ──────────────▶ holding ──────────────▶ stopped
//	   ▲                       │ release(id)           │ release(id)
//	   └───────────────────────┴───────────────────────┘
//
// While stopped nothing is written; what is queued waits.
type link struct {
	conn io.Writer

	mu      sync.Mutex // guards the rest
	wake    sync.Cond
	first   [][]byte     // encoded frames that go before a HOLD: the RELEASE of the one before
	control [][]byte     // encoded frames
	ready   []*outStream // each at most once
	holding *frame       // to be written as the last frame
	stopped bool
	writing bool // a write is under way
	closed  bool
}

func newLink(conn io.Writer) *link {
	l := &link{conn: conn}
	l.wake.L = &l.mu
	return l
}

// run writes until close or the first error.
func (l *link) run() error {
	buf := make([]byte, 0, maxDataBytes+positionBytes+headerBytes)
	for {
		p, stream := l.take()
		if stream != nil {
			var more bool
			if p, more = stream.fill(buf); more {
				l.queue(stream)
			}
		}
		var err error
		if len(p) > 0 {
			_, err = l.conn.Write(p)
		} else if stream == nil {
			return nil
		}
		l.mu.Lock()
		l.writing = false
		l.wake.Broadcast()
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// take waits for the next thing to write: an encoded frame or a stream; neither after close.
func (l *link) take() ([]byte, *outStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed:
			return nil, nil
		case l.stopped:
		case len(l.first) > 0:
			p := l.first[0]
			l.first = append(l.first[:0], l.first[1:]...)
			l.writing = true
			return p, nil
		case l.holding != nil:
			p := appendFrame(nil, *l.holding)
			l.stopped, l.writing = true, true
			return p, nil
		case len(l.control) > 0:
			p := l.control[0]
			l.control = append(l.control[:0], l.control[1:]...) // in place: it is short
			l.writing = true
			return p, nil
		case len(l.ready) > 0:
			s := l.ready[0]
			l.ready = append(l.ready[:0], l.ready[1:]...)
			l.writing = true
			return nil, s
		}
		l.wake.Wait()
	}
}

// send queues a control frame. It doesn't wait.
func (l *link) send(f frame) {
	p := appendFrame(nil, f)
	l.mu.Lock()
	l.control = append(l.control, p)
	l.wake.Broadcast()
	l.mu.Unlock()
}

// queue says that a stream has something to send.
func (l *link) queue(s *outStream) {
	l.mu.Lock()
	if !slices.Contains(l.ready, s) { // few are
		l.ready = append(l.ready, s)
		l.wake.Broadcast()
	}
	l.mu.Unlock()
}

// idle tells whether everything queued has been written.
func (l *link) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.writing && len(l.first) == 0 && len(l.control) == 0 && len(l.ready) == 0
}

// flush waits until everything queued has been written, or for limit.
func (l *link) flush(limit time.Duration) {
	late := false // guarded by mu
	timer := time.AfterFunc(limit, func() {
		l.mu.Lock()
		late = true
		l.wake.Broadcast()
		l.mu.Unlock()
	})
	defer timer.Stop()
	l.mu.Lock()
	for !late && !l.closed && (l.writing || len(l.first) > 0 || len(l.control) > 0 || len(l.ready) > 0) {
		l.wake.Wait()
	}
	l.mu.Unlock()
}

// reset forgets everything queued and any hold: a new session begins.
func (l *link) reset() {
	l.mu.Lock()
	l.first, l.control, l.ready, l.holding, l.stopped = nil, nil, nil, nil, false
	l.mu.Unlock()
}

// hold makes f the last frame to be written until release.
func (l *link) hold(f frame) {
	l.mu.Lock()
	l.holding = &f
	l.wake.Broadcast()
	l.mu.Unlock()
}

// rest waits until the last frame has been written and the writer is parked, or the link is closed.
func (l *link) rest() {
	l.mu.Lock()
	for !(l.stopped && !l.writing) && !l.closed {
		l.wake.Wait()
	}
	l.mu.Unlock()
}

// release ends the hold with this id and writes then, if it is not nil, before anything else. Later releases do nothing.
func (l *link) release(id uint32, then *frame) {
	l.mu.Lock()
	if l.holding != nil && l.holding.ID == id {
		said := l.stopped
		l.holding, l.stopped = nil, false
		if then != nil && said {
			l.first = append(l.first, appendFrame(nil, *then))
		}
		l.wake.Broadcast()
	}
	l.mu.Unlock()
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
}
