package uffd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"flash/memtrack"
)

// zeroWindowPages is how far a run of zero pages is filled around one that was touched: a guest that touches fresh memory
// goes on to its neighbours, and a run costs about as much as a page. Aligned. 64 * 4 KiB = 256 KiB.
const zeroWindowPages = 64

// aroundPages is how far pages with content are brought in around one that was touched, once the guest has it: a guest goes
// on to its neighbours, above all in its kernel's code, and a page read together with others costs a tenth of one read for a
// fault. Aligned. 16 * 4 KiB = 64 KiB.
const aroundPages = 16

// Base is the shared memory of one snapshot. Safe for concurrent use.
type Base struct {
	src    memtrack.Source
	slots  uint64
	filled []atomic.Uint64 // one bit a page; set only after its bytes are in the file
	refs   atomic.Int64

	life sync.RWMutex // guards fd: held for reading while it is used, so that its number isn't closed and reused
	fd   int          // -1 once closed

	mu      sync.Mutex // guards the rest
	flights map[uint64]*flight
}

// flight is one page being filled; others that want it wait.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewBase makes a base all of whose pages are absent. It has one holder: the caller.
func NewBase(src memtrack.Source) (*Base, error) {
	slots := src.Slots()
	if slots == 0 || slots > math.MaxInt64/pageBytes {
		return nil, fmt.Errorf("make shared memory of %d pages: %w", slots, unix.EINVAL)
	}
	fd, err := unix.MemfdCreate("flash-base", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(slots*pageBytes)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make shared memory of %d pages: %w", slots, err)
	}
	b := &Base{src: src, slots: slots, fd: fd, filled: make([]atomic.Uint64, (slots+63)/64), flights: map[uint64]*flight{}}
	b.refs.Store(1)
	return b, nil
}

// Pages is how many pages the snapshot has.
func (b *Base) Pages() uint64 { return b.slots }

// Present tells whether a page has been filled.
func (b *Base) Present(page uint64) bool { return b.filled[page/64].Load()&(1<<(page%64)) != 0 }

// Filled counts the pages that have been filled.
func (b *Base) Filled() (n uint64) {
	for page := range b.slots {
		if b.Present(page) {
			n++
		}
	}
	return n
}

func (b *Base) setPresent(page uint64) { b.filled[page/64].Or(1 << (page % 64)) }

// Retain adds a holder; each calls Close once.
func (b *Base) Retain() *Base {
	b.refs.Add(1)
	return b
}

// Close lets the memory go with its last holder, after the fills that are writing.
func (b *Base) Close() error {
	if b.refs.Add(-1) != 0 {
		return nil
	}
	b.life.Lock()
	defer b.life.Unlock()
	fd := b.fd
	b.fd = -1
	return unix.Close(fd)
}

// Fill brings a page in if it is absent; with a zero page, the zero pages around it.
func (b *Base) Fill(ctx context.Context, page uint64) error {
	if page >= b.slots {
		return fmt.Errorf("fill page %d: the snapshot has %d", page, b.slots)
	}
	for !b.Present(page) {
		b.mu.Lock()
		f, busy := b.flights[page]
		if !busy {
			f = &flight{done: make(chan struct{})}
			b.flights[page] = f
		}
		b.mu.Unlock()
		if !busy {
			f.err = b.bringIn(ctx, page)
			b.mu.Lock()
			delete(b.flights, page)
			b.mu.Unlock()
			close(f.done)
			return f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		// The one we waited for may have been cancelled; that says nothing about us.
		if f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.err
		}
	}
	return nil
}

var pageBuffers = sync.Pool{New: func() any { return new([pageBytes]byte) }}

func (b *Base) bringIn(ctx context.Context, page uint64) error {
	zero, err := b.src.IsZero(ctx, page)
	if err != nil {
		return fmt.Errorf("fill page %d: %w", page, err)
	}
	if zero {
		first, n := b.zeroRun(ctx, page)
		return b.writeZeros(first, n)
	}
	buffer := pageBuffers.Get().(*[pageBytes]byte)
	defer pageBuffers.Put(buffer)
	if err := b.src.ReadSlot(ctx, page, buffer[:]); err != nil {
		return fmt.Errorf("fill page %d: %w", page, err)
	}
	return b.write(page, buffer[:])
}

// Around brings in what is absent around a page, in its window, and gives that. It is a guess, so what can't be read stays
// absent until it is touched.
func (b *Base) Around(ctx context.Context, page uint64) (brought []uint64) {
	low := page / aroundPages * aroundPages
	for p := low; p < min(low+aroundPages, b.slots); p++ {
		if !b.Present(p) {
			brought = append(brought, p)
		}
	}
	if len(brought) > 0 {
		_ = b.Prefetch(ctx, brought)
	}
	return brought
}

// zeroRun gives the run of absent zero pages around page, inside its window. What can't be told ends the run.
func (b *Base) zeroRun(ctx context.Context, page uint64) (first, n uint64) {
	joins := func(p uint64) bool {
		if b.Present(p) {
			return false
		}
		zero, err := b.src.IsZero(ctx, p)
		return zero && err == nil
	}
	low := page / zeroWindowPages * zeroWindowPages
	high := min(low+zeroWindowPages, b.slots)
	first, end := page, page+1
	for first > low && joins(first-1) {
		first--
	}
	for end < high && joins(end) {
		end++
	}
	return first, end - first
}

// write puts whole pages into the file.
func (b *Base) write(first uint64, data []byte) error {
	b.life.RLock()
	defer b.life.RUnlock()
	if b.fd < 0 {
		return fmt.Errorf("fill page %d: %w", first, memtrack.ErrEnded)
	}
	for done := 0; done < len(data); {
		n, err := unix.Pwrite(b.fd, data[done:], int64(first*pageBytes)+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("fill page %d: %w", first+uint64(done/pageBytes), err)
		}
		done += n
	}
	for i := range uint64(len(data) / pageBytes) {
		b.setPresent(first + i)
	}
	return nil
}

// writeZeros allocates pages; the kernel clears each when it is first touched.
func (b *Base) writeZeros(first, n uint64) error {
	b.life.RLock()
	defer b.life.RUnlock()
	if b.fd < 0 {
		return fmt.Errorf("fill page %d: %w", first, memtrack.ErrEnded)
	}
	for {
		err := unix.Fallocate(b.fd, 0, int64(first*pageBytes), int64(n*pageBytes))
		if err == unix.EINTR { // a signal undoes it
			continue
		}
		if err != nil {
			return fmt.Errorf("fill %d zero pages from page %d: %w", n, first, err)
		}
		break
	}
	for i := range n {
		b.setPresent(first + i)
	}
	return nil
}

// readBack reads a page that is present from the file.
func (b *Base) readBack(page uint64, dst []byte) error {
	if page >= b.slots || !b.Present(page) || len(dst) != pageBytes {
		return fmt.Errorf("read back page %d into %d bytes: %w", page, len(dst), unix.EINVAL)
	}
	b.life.RLock()
	defer b.life.RUnlock()
	if b.fd < 0 {
		return fmt.Errorf("read back page %d: %w", page, memtrack.ErrEnded)
	}
	for {
		n, err := unix.Pread(b.fd, dst, int64(page*pageBytes))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("read back page %d: %w", page, err)
		case n != pageBytes:
			return fmt.Errorf("read back page %d: %w", page, io.ErrUnexpectedEOF)
		default:
			return nil
		}
	}
}
