package pagemap

import (
	"context"
	"fmt"
	"sync"

	"flash/memtrack"
)

// spanned is memory that lies in another process: *memtrack.Process, or what embeds one.
type spanned interface {
	memtrack.Memory
	Span() memtrack.Span
}

// Scan tracks exactly with PAGEMAP_SCAN. Its memory must be registered for asynchronous write protection.
type Scan struct {
	baseline memtrack.Baseline

	mu     sync.Mutex // guards the rest; held during system calls, not while pages are copied
	ledger memtrack.Ledger
	memory spanned
	reader *scanner
	lost   bool // a scan failed half-way: any page may have been taken from the kernel without our learning of it
}

// NewScan makes a tracker that Start will bind to memory.
func NewScan(b memtrack.Baseline) *Scan { return &Scan{baseline: b} }

// Name is "pagemap-scan".
func (t *Scan) Name() string { return "pagemap-scan" }

// written is what a cut takes: the unprotected pages, protecting them again.
var written = filter{flags: flagWPMatching | flagCheckWPAsync, mask: pageIsWritten}

// Start arms the whole memory. What the baseline doesn't vouch for counts as changed at the first Cut: with Zeroed, what the
// process holds already. Starting again on the same memory is a no-op. Precondition, unless Zeroed: nothing is written
// during Start.
func (t *Scan) Start(m memtrack.Memory) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := bind(t.memory, m)
	if s == nil || err != nil {
		return err
	}
	reader, err := openScanner(s.Span())
	if err != nil {
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	held, err := heldAndArm(s.Span(), reader, t.baseline)
	if err == nil {
		err = memtrack.Prepare()
	}
	if err != nil {
		_ = reader.close()
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	t.ledger.Owe(held)
	t.memory, t.reader = s, reader
	return nil
}

// heldAndArm gives the pages that the baseline doesn't vouch for. It looks before and after arming, so that a page written in
// between is found by one of the two.
func heldAndArm(s memtrack.Span, reader *scanner, b memtrack.Baseline) ([]uint64, error) {
	held, err := heldAt(s, b, func() ([]uint64, error) { return populated(s, reader) })
	if err != nil {
		return nil, err
	}
	if _, err := reader.scan(written); err != nil { // its result is "all": a page that was never there has no protection either
		return nil, err
	}
	if b != memtrack.Zeroed {
		return held, nil
	}
	after, err := reader.scan(present(s))
	if err != nil {
		return nil, err
	}
	return memtrack.Union(held, after), nil
}

// heldAt gives the pages that count as changed at Start.
func heldAt(s memtrack.Span, b memtrack.Baseline, populated func() ([]uint64, error)) ([]uint64, error) {
	switch b {
	case memtrack.Same:
		return nil, nil
	case memtrack.Zeroed:
		return populated()
	default:
		return everyPage(s.Pages()), nil
	}
}

// Cut takes the changed pages and copies them.
func (t *Scan) Cut(ctx context.Context) (*memtrack.Delta, error) {
	pages, m, err := t.take()
	if err != nil {
		return nil, fmt.Errorf("cut by %s: %w", t.Name(), err)
	}
	d, err := t.ledger.Cut(ctx, m, pages)
	if err != nil {
		return nil, fmt.Errorf("cut by %s: %w", t.Name(), err)
	}
	return d, nil
}

func (t *Scan) take() ([]uint64, memtrack.Memory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memory == nil {
		return nil, nil, fmt.Errorf("tracking has not started: %w", memtrack.ErrEnded)
	}
	if err := t.ledger.Ready(); err != nil {
		return nil, nil, err
	}
	pages, err := t.reader.scan(written)
	if err != nil {
		t.lost = true
		return nil, nil, err
	}
	if t.lost { // I7
		pages = everyPage(t.memory.Pages())
		t.lost = false
	}
	return pages, t.memory, nil
}

// Pending counts the changed pages and leaves them.
func (t *Scan) Pending(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memory == nil {
		return 0, fmt.Errorf("count changed pages: tracking has not started: %w", memtrack.ErrEnded)
	}
	if t.lost {
		return int(t.memory.Pages()), nil
	}
	pages, err := t.reader.scan(filter{flags: flagCheckWPAsync, mask: pageIsWritten})
	if err != nil {
		return 0, fmt.Errorf("count changed pages: %w", err)
	}
	return len(memtrack.Union(t.ledger.Owed(), pages)), nil
}

// Stop ends tracking. An open delta stays readable.
func (t *Scan) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memory == nil {
		return nil
	}
	t.memory = nil
	return t.reader.close()
}

// bind gives m as memory of another process; nil when it is the one bound already.
func bind(bound spanned, m memtrack.Memory) (spanned, error) {
	if bound != nil {
		if memtrack.SameMemory(bound, m) {
			return nil, nil
		}
		return nil, fmt.Errorf("track memory: started already, on other memory")
	}
	s, ok := m.(spanned)
	if !ok {
		return nil, fmt.Errorf("track memory: a %T doesn't lie in another process", m)
	}
	return s, nil
}

func everyPage(n uint64) []uint64 {
	pages := make([]uint64, n)
	for i := range pages {
		pages[i] = uint64(i)
	}
	return pages
}
