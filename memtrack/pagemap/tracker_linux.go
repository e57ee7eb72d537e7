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

	mu      sync.Mutex // guards the rest; held during system calls, not while pages are copied
	ledger  memtrack.Ledger
	memory  spanned
	reader  *scanner
	changed filter // what a cut takes
	lost    bool   // a scan failed half-way: any page may have been taken from the kernel without our learning of it
}

// NewScan makes a tracker that Start will bind to memory.
func NewScan(b memtrack.Baseline) *Scan { return &Scan{baseline: b} }

// Name is "pagemap-scan".
func (t *Scan) Name() string { return "pagemap-scan" }

// Start arms the memory. What the baseline doesn't vouch for counts as changed at the first Cut: with Zeroed, what the
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
	held, changed, err := arm(s.Span(), reader, t.baseline)
	if err == nil {
		err = memtrack.Prepare()
	}
	if err != nil {
		_ = reader.close()
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	t.ledger.Owe(held)
	t.memory, t.reader, t.changed = s, reader, changed
	return nil
}

// arm gives the pages that count as changed at Start and the filter of later cuts.
func arm(s memtrack.Span, reader *scanner, b memtrack.Baseline) (held []uint64, changed filter, err error) {
	if !sharedAt(s) {
		before, err := reader.scan(writtenPrivate)
		if err != nil {
			return nil, filter{}, err
		}
		held, err := heldAt(s, b, func() ([]uint64, error) { return before, nil })
		return held, writtenPrivate, err
	}
	held, err = heldAt(s, b, func() ([]uint64, error) { return populated(s, reader) })
	if err != nil {
		return nil, filter{}, err
	}
	if _, err := reader.scan(writtenShared); err != nil { // its result is "all": a page that was never there has no protection either
		return nil, filter{}, err
	}
	if b == memtrack.Zeroed { // written since populated looked
		after, err := reader.scan(filter{mask: pageIsPresent})
		if err != nil {
			return nil, filter{}, err
		}
		held = memtrack.Union(held, after)
	}
	return held, writtenShared, nil
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
	pages, err := t.reader.scan(t.changed)
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
	look := t.changed
	look.flags &^= flagWPMatching
	pages, err := t.reader.scan(look)
	if err != nil {
		return 0, fmt.Errorf("count changed pages: %w", err)
	}
	if t.lost {
		return int(t.memory.Pages()), nil
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
