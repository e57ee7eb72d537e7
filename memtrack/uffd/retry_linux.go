package uffd

import (
	"fmt"
	"time"
)

// retry tries a page again and again, apart, so that it doesn't hold up others. The guest waits meanwhile.
func (p *Pager) retry(page uint64, err error) {
	p.mu.Lock()
	_, already := p.retrying[page]
	start := !already && !p.closed
	if start {
		p.retrying[page] = struct{}{}
		p.wg.Add(1)
	}
	p.mu.Unlock()
	if start {
		go p.keepTrying(page, err)
	}
}

func (p *Pager) keepTrying(page uint64, err error) {
	defer p.wg.Done()
	since, pause := time.Now(), minBackoff
	for err != nil {
		if p.perm(err) || time.Since(since) >= p.give {
			p.tellLost(fmt.Errorf("guest page %d of process %d can't be had: %w", page, p.span.PID, err))
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-p.ctx.Done():
			wait.Stop()
			return
		}
		pause = min(2*pause, maxBackoff)
		err = p.base.Fill(p.ctx, page)
	}
	// A fault on this page that comes from now on finds it filled; one that came before is woken below.
	p.mu.Lock()
	delete(p.retrying, page)
	p.mu.Unlock()
	p.served(page)
}

// tellLost tells the first loss; one is enough to end a machine.
func (p *Pager) tellLost(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.closed {
		return
	}
	p.gone = true
	p.lost <- err
}
