package memtrack

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"sync"
)

// Buffer is guest memory inside this process, for machines that are not real and for tests. Every write is seen, and pages
// can be absent until they are touched. Safe for concurrent use.
type Buffer struct {
	mu      sync.Mutex // guards the rest; held while an absent page is read from src
	bytes   []byte
	written bitmap
	absent  bitmap
	src     Source
	scratch string
	touched []uint64
}

// NewBuffer makes zero memory of n bytes, a multiple of PageBytes.
func NewBuffer(n uint64) *Buffer {
	return &Buffer{bytes: make([]byte, n), written: newBitmap(n / PageBytes), absent: newBitmap(n / PageBytes)}
}

// NewLazyBuffer makes memory whose pages are absent: each comes from src when it is first read or written.
func NewLazyBuffer(src Source) *Buffer {
	b := NewBuffer(src.Slots() * PageBytes)
	b.src = src
	for page := range src.Slots() {
		b.absent.set(page)
	}
	return b
}

// SetScratch says where copies of its pages may lie that don't fit into memory. Before it is used.
func (b *Buffer) SetScratch(dir string) { b.scratch = dir }

// Scratch is that folder; "": none.
func (b *Buffer) Scratch() string { return b.scratch }

func (b *Buffer) Pages() uint64 { return uint64(len(b.bytes) / PageBytes) }

// View copies pages. Absent ones come in; that is not a write.
func (b *Buffer) View(ctx context.Context, pages []uint64, dst []byte) error {
	if err := checkView(b, pages, dst); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, page := range pages {
		if err := b.bringIn(ctx, page); err != nil {
			return err
		}
		copy(dst[i*PageBytes:(i+1)*PageBytes], b.bytes[page*PageBytes:])
	}
	return nil
}

// ReadAt is what a guest's load is.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	return b.access(p, off, func(page, at uint64, p []byte) int { return copy(p, b.bytes[at:]) })
}

// WriteAt is what a guest's store is.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	return b.access(p, off, func(page, at uint64, p []byte) int {
		b.written.set(page)
		return copy(b.bytes[at:], p)
	})
}

func (b *Buffer) access(p []byte, off int64, do func(page, at uint64, p []byte) int) (int, error) {
	if off < 0 || uint64(off)+uint64(len(p)) > uint64(len(b.bytes)) {
		return 0, fmt.Errorf("guest memory of %d bytes: access of %d bytes at %d: %w", len(b.bytes), len(p), off, io.ErrUnexpectedEOF)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(p) {
		at := uint64(off) + uint64(n)
		page := at / PageBytes
		if err := b.bringIn(context.Background(), page); err != nil {
			return n, err
		}
		n += do(page, at, p[n:min(len(p), n+int(PageBytes-at%PageBytes))])
	}
	return n, nil
}

// bringIn needs mu.
func (b *Buffer) bringIn(ctx context.Context, page uint64) error {
	if !b.absent.has(page) {
		return nil
	}
	if err := b.src.ReadSlot(ctx, page, b.bytes[page*PageBytes:(page+1)*PageBytes]); err != nil {
		return fmt.Errorf("bring in guest page %d: %w", page, err)
	}
	b.absent.clear(page)
	b.touched = append(b.touched, page)
	return nil
}

// Touched gives the pages brought in, in order.
func (b *Buffer) Touched() []uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]uint64(nil), b.touched...)
}

// Absent tells whether a page has not been brought in yet; such a page can't have been written.
func (b *Buffer) Absent(page uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.absent.has(page)
}

// Written gives the pages written since the last call that took them, ascending.
func (b *Buffer) Written(take bool) []uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	pages := b.written.list()
	if take {
		clear(b.written)
	}
	return pages
}

// BufferTracker tracks a Buffer exactly, by its own writes.
type BufferTracker struct {
	ledger Ledger
	buffer *Buffer
}

// Start begins to track m, a *Buffer.
func (t *BufferTracker) Start(m Memory) error {
	b, ok := m.(*Buffer)
	if !ok {
		return fmt.Errorf("track writes: the memory is a %T, want a *memtrack.Buffer", m)
	}
	t.buffer = b
	return nil
}

func (t *BufferTracker) Cut(ctx context.Context) (*Delta, error) {
	if t.buffer == nil {
		return nil, fmt.Errorf("cut: not started: %w", ErrEnded)
	}
	if err := t.ledger.Ready(); err != nil {
		return nil, fmt.Errorf("cut: %w", err)
	}
	return t.ledger.Cut(ctx, t.buffer, t.buffer.Written(true))
}

func (t *BufferTracker) Pending(context.Context) (int, error) {
	if t.buffer == nil {
		return 0, fmt.Errorf("count changed pages: not started: %w", ErrEnded)
	}
	return len(Union(t.ledger.Owed(), t.buffer.Written(false))), nil
}

func (t *BufferTracker) Stop() error {
	t.buffer = nil
	return nil
}

// Name is "write-hook".
func (t *BufferTracker) Name() string { return "write-hook" }

// bitmap has one bit a page.
type bitmap []uint64

func newBitmap(n uint64) bitmap       { return make(bitmap, (n+63)/64) }
func (m bitmap) has(page uint64) bool { return m[page/64]&(1<<(page%64)) != 0 }
func (m bitmap) set(page uint64)      { m[page/64] |= 1 << (page % 64) }
func (m bitmap) clear(page uint64)    { m[page/64] &^= 1 << (page % 64) }
func (m bitmap) list() (pages []uint64) {
	for i, word := range m {
		for ; word != 0; word &= word - 1 {
			pages = append(pages, uint64(i)*64+uint64(bits.TrailingZeros64(word)))
		}
	}
	return pages
}

// checkView is what every Memory asks of its caller.
func checkView(m Memory, pages []uint64, dst []byte) error {
	if len(dst) != len(pages)*PageBytes {
		return fmt.Errorf("view %d pages: the buffer has %d bytes, want %d", len(pages), len(dst), len(pages)*PageBytes)
	}
	for i, page := range pages {
		if page >= m.Pages() {
			return fmt.Errorf("view page %d: the memory has %d pages", page, m.Pages())
		}
		if i > 0 && page <= pages[i-1] {
			return fmt.Errorf("view page %d after page %d: pages must ascend", page, pages[i-1])
		}
	}
	return nil
}
