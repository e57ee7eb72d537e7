package qemu

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// pool keeps a few waiting processes of the shape that was asked for last, and for a while as many as were asked for at once.
// One goroutine (fill) makes them; one for each
// (guard) notices when it dies.
type pool struct {
	spawn func(context.Context, shape) (*instance, error)
	size  int // processes that wait at least; 0: none ever does
	now   func() time.Time
	log   *slog.Logger

	stop   context.CancelFunc
	stopCh <-chan struct{}
	kick   chan struct{} // capacity 1: there may be something to make
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the rest; never held over a spawn
	wanted  *shape
	busy    int       // restores under way: they need the CPUs more
	waiting []*waiter // oldest first
	deaths  int       // of waiting processes, in a row
	demand  demand
}

// demand is how many machines were asked for at once lately: so many may be asked for again.
type demand struct {
	burst  int // asked for since no restore was under way: the children of a fork
	peak   int // the widest burst
	peaked time.Time
}

const (
	peakKept  = 10 * time.Minute // how long a wide burst is prepared for
	maxAtOnce = 8                // waiting processes: each holds some 20 MiB
)

func (d *demand) note(now time.Time) {
	d.burst++
	if d.burst >= d.peak || now.Sub(d.peaked) > peakKept {
		d.peak, d.peaked = d.burst, now
	}
}

// target is how many should wait.
func (p *pool) target() int {
	if p.size == 0 || p.now().Sub(p.demand.peaked) > peakKept {
		return p.size
	}
	return max(p.size, min(p.demand.peak, maxAtOnce))
}

// waiter is a waiting process in the pool.
type waiter struct {
	*instance
	taken chan struct{} // closed when it leaves the pool
}

// fillRest is how long the CPUs are left to a machine that was just restored and its first command, before they are spent on
// a new waiting process, which takes 50 ms of one. A wide fork therefore makes what it needs itself, and no more.
const fillRest = 400 * time.Millisecond

// maxDeaths is how often in a row a waiting process may die before no more are made until the next warm: a QEMU that can't
// live must not be started for ever.
const maxDeaths = 3

func newPool(size int, log *slog.Logger, spawn func(context.Context, shape) (*instance, error)) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pool{spawn: spawn, size: size, now: time.Now, log: log, stop: cancel, stopCh: ctx.Done(), kick: make(chan struct{}, 1)}
	p.wg.Go(func() { p.fill(ctx) })
	return p
}

// take gives a living process of this shape, specialised by nobody yet; nil if there is none.
func (p *pool) take(s shape) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.note(p.now())
	for i, w := range p.waiting {
		if w.shape != s || hasEnded(w.ended) {
			continue
		}
		p.remove(i)
		p.deaths = 0
		return w.instance
	}
	return nil
}

// warm asks for waiting processes of this shape, made in the background.
func (p *pool) warm(s shape) {
	p.mu.Lock()
	p.wanted, p.deaths = &s, 0
	p.mu.Unlock()
	p.nudge()
}

// hold puts the making of processes off until the function it gives is called, which then warms.
func (p *pool) hold(s shape) (release func()) {
	p.mu.Lock()
	if p.busy == 0 {
		p.demand.burst = 0
	}
	p.busy++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.busy--
		p.mu.Unlock()
		p.warm(s)
	}
}

func (p *pool) nudge() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// close ends what waits and returns when nothing of the pool is left.
func (p *pool) close() {
	p.stop()
	p.wg.Wait()
	p.mu.Lock()
	left := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, w := range left {
		w.close()
	}
}

func (p *pool) fill(ctx context.Context) {
	shrink := time.NewTimer(peakKept) // after it nobody may come for what a wide burst has left
	defer shrink.Stop()
	for {
		select {
		case <-p.kick:
			shrink.Reset(peakKept)
		case <-shrink.C:
		case <-ctx.Done():
			return
		}
		rest := time.NewTimer(fillRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
		for ctx.Err() == nil && p.makeOne(ctx) {
		}
	}
}

// makeOne brings the pool one step nearer to what is wanted and says whether there may be more to do.
func (p *pool) makeOne(ctx context.Context) bool {
	p.mu.Lock()
	if p.wanted == nil || p.busy > 0 || p.deaths >= maxDeaths {
		p.mu.Unlock()
		return false
	}
	wanted, fit, target := *p.wanted, 0, p.target()
	for _, w := range p.waiting {
		if w.shape == wanted {
			fit++
		}
	}
	var evicted *waiter
	if fit < target && len(p.waiting) >= target || len(p.waiting) > target {
		for i, w := range p.waiting {
			if w.shape != wanted || fit > target {
				evicted = w
				p.remove(i)
				break
			}
		}
	}
	p.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
	if fit >= target {
		return fit > target
	}
	in, err := p.spawn(ctx, wanted)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Warn("a waiting process didn't start", "err", err)
		}
		return false
	}
	w := &waiter{instance: in, taken: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	p.wg.Go(func() { p.guard(w) })
	return true
}

// guard replaces a waiting process that dies.
func (p *pool) guard(w *waiter) {
	select {
	case <-w.taken:
		return
	case <-p.stopCh:
		return
	case <-w.ended:
	}
	p.mu.Lock()
	was := false
	for i, other := range p.waiting {
		if other == w {
			p.remove(i)
			p.deaths++
			was = true
			break
		}
	}
	p.mu.Unlock()
	if !was {
		return // taken, or evicted, at the same moment
	}
	p.log.Warn("a waiting process died", "pid", w.id.PID, "said", w.said.lastLine())
	w.close()
	p.nudge()
}

// remove is called with mu held.
func (p *pool) remove(i int) {
	close(p.waiting[i].taken)
	p.waiting = append(p.waiting[:i:i], p.waiting[i+1:]...)
}

func hasEnded(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
