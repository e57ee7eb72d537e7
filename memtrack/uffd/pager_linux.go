package uffd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

const (
	maxTouched   = 65536 // pages whose order of first touch is kept: 256 MiB, far above any working set worth recording
	servers      = 4     // one waits for messages while up to three wait for the Source
	readMessages = 64

	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// Options of a Pager; zero values are good.
type Options struct {
	// Protect registers the memory for asynchronous write protection too, for pagemap.Scan.
	Protect bool
	// GiveUp is for how long a page may fail before it is reported on Lost. 0: 30 s.
	GiveUp time.Duration
	// Permanent tells an error that no retry mends; it is reported at once. nil: one that has a Permanent() bool method which
	// says so.
	Permanent func(error) bool
}

// Pager serves the faults of one machine from a Base.
type Pager struct {
	span   memtrack.Span
	base   *Base
	fd     int // our copy of the userfaultfd
	stop   int // eventfd: readable once Close has begun
	give   time.Duration
	perm   func(error) bool
	ctx    context.Context
	cancel context.CancelFunc
	lost   chan error
	faults atomic.Uint64
	memory *memory

	turn sync.Mutex // held by the server that waits for messages
	wg   sync.WaitGroup

	mu       sync.Mutex // guards the rest
	touched  []uint64
	seen     map[uint64]struct{}
	around   map[uint64][]uint64 // what came in after a page was touched
	retrying map[uint64]struct{}
	gone     bool // lost has been told
	closed   bool
}

// Open puts the memory of a waiting machine over base and serves its faults until Close. It holds base itself.
// Preconditions: the machine's process runs no guest code; the span is its whole memory, as long as base.
func Open(ctx context.Context, s memtrack.Span, base *Base, o Options) (*Pager, error) {
	if s.Pages() != base.Pages() {
		return nil, fmt.Errorf("attach to process %d: its memory has %d pages, the snapshot %d", s.PID, s.Pages(), base.Pages())
	}
	if o.GiveUp == 0 {
		o.GiveUp = 30 * time.Second
	}
	if o.Permanent == nil {
		o.Permanent = saysPermanent
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("attach to process %d: %w", s.PID, err)
	}
	fd, err := attach(ctx, s, base, o.Protect)
	if err != nil {
		_ = unix.Close(stop)
		return nil, fmt.Errorf("attach to process %d: %w", s.PID, err)
	}
	p := &Pager{span: s, base: base.Retain(), fd: fd, stop: stop, give: o.GiveUp, perm: o.Permanent, lost: make(chan error, 1),
		seen: map[uint64]struct{}{}, around: map[uint64][]uint64{}, retrying: map[uint64]struct{}{}}
	p.memory = &memory{Process: memtrack.NewProcess(s), base: base}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for range servers {
		p.wg.Go(p.serve)
	}
	return p, nil
}

// Touched gives the pages that were touched, in about the order of first touch: those whose faults were served, each
// followed by those that came in with it and that the machine has mapped since. At most 65,536.
// Of a machine that has ended only the former are known.
func (p *Pager) Touched() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return withMapped(p.span, p.touched, p.around)
}

// Used gives those of some pages that the machine has mapped, in the order given. known is false when it can't be told.
func (p *Pager) Used(pages []uint64) (used []uint64, known bool) { return mapped(p.span, pages) }

// Faults counts the faults served.
func (p *Pager) Faults() uint64 { return p.faults.Load() }

// Lost gives one error when a page can't be had, neither now nor, it seems, later. The machine waits for it, for ever if
// need be; whoever receives the error should end the machine.
func (p *Pager) Lost() <-chan error { return p.lost }

// Close stops serving. Faults of a machine that still lives wait from now on. Ending twice is harmless.
func (p *Pager) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_, err := unix.Write(p.stop, encodeWords(1))
	p.wg.Wait()
	return errors.Join(err, unix.Close(p.fd), unix.Close(p.stop), p.base.Close())
}

// serve is one of the servers. They take turns in waiting for messages; who got some serves them while the next one waits.
func (p *Pager) serve() {
	messages := make([]byte, readMessages*messageBytes)
	for {
		p.turn.Lock()
		n, err := p.receive(messages)
		p.turn.Unlock()
		if err != nil {
			p.tellLost(fmt.Errorf("serve the memory of process %d: %w", p.span.PID, err))
			return
		}
		if n == 0 {
			return
		}
		for at := 0; at+messageBytes <= n; at += messageBytes {
			if address, isFault := faultAddress(messages[at : at+messageBytes]); isFault {
				p.fault((address - p.span.Start) / pageBytes)
			}
		}
	}
}

// receive gives the bytes of the messages there are, waiting for one; 0 once Close has begun.
func (p *Pager) receive(messages []byte) (int, error) {
	for {
		wait := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}, {Fd: int32(p.stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(wait, -1); err != nil && err != unix.EINTR {
			return 0, err
		}
		if wait[1].Revents != 0 {
			return 0, nil
		}
		if wait[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0 {
			return 0, unix.EBADF
		}
		n, err := unix.Read(p.fd, messages)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		return n, err
	}
}

func (p *Pager) fault(page uint64) {
	if page >= p.span.Pages() {
		return // not ours: nothing else was registered, so the kernel sends no such message
	}
	p.note(page)
	present := p.base.Present(page)
	if err := p.base.Fill(p.ctx, page); err != nil {
		p.retry(page, err)
		return
	}
	p.served(page)
	if !present {
		p.noteAround(page, p.base.Around(p.ctx, page))
	}
}

// served lets the machine go on.
func (p *Pager) served(page uint64) {
	p.faults.Add(1)
	if err := wake(p.fd, p.span.Address(page)); err != nil {
		p.tellLost(fmt.Errorf("wake process %d at page %d: %w", p.span.PID, page, err))
	}
}

func (p *Pager) note(page uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.seen[page]; !known && len(p.touched) < maxTouched {
		p.seen[page] = struct{}{}
		p.touched = append(p.touched, page)
	}
}

func (p *Pager) noteAround(page uint64, brought []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.seen[page]; known && len(brought) > 0 {
		p.around[page] = brought
	}
}

// saysPermanent asks the error itself.
func saysPermanent(err error) bool {
	var e interface{ Permanent() bool }
	return errors.As(err, &e) && e.Permanent()
}
