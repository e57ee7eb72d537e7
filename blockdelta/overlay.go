package blockdelta

import (
	"context"
	"fmt"
	"sync"
)

// Overlay is a writable disk of base.Slots() blocks. Safe for concurrent use.
// Written blocks live in an unlinked file in a folder the caller names, so a guest may write more than fits in memory.
type Overlay struct {
	blocks  uint64
	scratch *scratch

	mu      sync.Mutex // guards the rest; never held across I/O
	base    Base
	top     *layer
	frozen  *layer // nil: no delta is open
	closed  bool
	writers int           // writes and zeroes in flight
	cutting chan struct{} // not nil while a cut waits for them; closed when it has ended
	drained chan struct{} // not nil while a cut waits for them; closed when the last has ended

	oldest, newest *era
	reclaimable    []place // slots no request can know any more
	reclaiming     bool    // a goroutine is giving them back
	reclaims       sync.WaitGroup
}

// New makes an overlay; scratch is a folder on a disk with room for what the guest writes between two commits.
func New(base Base, scratch string) (*Overlay, error) {
	if base.Slots() > maxBlocks {
		return nil, fmt.Errorf("make an overlay: the base has %d blocks, more than %d", base.Slots(), maxBlocks)
	}
	s, err := openScratch(scratch)
	if err != nil {
		return nil, fmt.Errorf("make an overlay: %w", err)
	}
	e := &era{}
	return &Overlay{blocks: base.Slots(), scratch: s, base: base, top: newLayer(), oldest: e, newest: e}, nil
}

// Bytes is the size of the disk.
func (o *Overlay) Bytes() uint64 { return o.blocks * BlockBytes }

// Pending counts the blocks written since the last cut.
func (o *Overlay) Pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.top.count
}

// ScratchBytes is the room that written blocks take in the scratch file now.
func (o *Overlay) ScratchBytes() int64 { return o.scratch.usedBytes() }

// Close frees the scratch space. Open deltas become unreadable. Closing twice is harmless.
func (o *Overlay) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	o.mu.Unlock()
	o.reclaims.Wait() // none is started once closed is set
	return o.scratch.close()
}

// inRange checks a request before anything is computed from it.
func (o *Overlay) inRange(verb string, off, length int64) error {
	// off+length is compared as unsigned: the sum of two non-negative int64 can't wrap there.
	if off < 0 || length < 0 || uint64(off)+uint64(length) > o.Bytes() {
		return fmt.Errorf("%s %d bytes at offset %d of a disk of %d bytes: %w", verb, length, off, o.Bytes(), ErrRange)
	}
	return nil
}

// resolve finds where blocks from first on lie, and the base that holds the absent ones, in one instant.
func (o *Overlay) resolve(first uint64, places []place) Base {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.top.lookup(first, places)
	if o.frozen != nil {
		o.frozen.lookup(first, places)
	}
	return o.base
}

// begin enters a request; every begin that succeeds is paired with end. A write waits while a cut waits for writes.
func (o *Overlay) begin(ctx context.Context, write bool) (*era, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for write && o.cutting != nil && !o.closed {
		cutting := o.cutting
		o.mu.Unlock()
		select {
		case <-cutting:
		case <-ctx.Done():
		}
		o.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if o.closed {
		return nil, ErrClosed
	}
	if write {
		o.writers++
	}
	o.newest.requests++
	return o.newest, nil
}

func (o *Overlay) end(e *era, write bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if write {
		o.writers--
		if o.writers == 0 && o.drained != nil {
			close(o.drained)
			o.drained = nil
		}
	}
	e.requests--
	o.passEras()
}
