package pagemap

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"

	"flash/memtrack"
)

const (
	entryPresent   = 1 << 63
	entrySwapped   = 1 << 62
	entrySoftDirty = 1 << 55
	entryBytes     = 8
	windowEntries  = 64 << 10 // 512 KiB of entries: 256 MiB of memory a read
)

// SoftDirty tracks with the soft-dirty bits of the page table. It over-reports: the kernel sets the bit for whole new
// mappings, and Linux forgets it for shared pages that were swapped out, so with shared memory and swap everything counts.
// A cut stops the process for as long as it takes the bits (see standStill): even one that isn't paused loses no write.
type SoftDirty struct {
	baseline memtrack.Baseline

	mu     sync.Mutex // guards the rest; held during system calls, not while pages are copied
	ledger memtrack.Ledger
	memory spanned
	lost   bool // a cut failed half-way
}

// NewSoftDirty makes a tracker that Start will bind to memory. Only one may track a process.
func NewSoftDirty(b memtrack.Baseline) *SoftDirty { return &SoftDirty{baseline: b} }

// Name is "soft-dirty".
func (t *SoftDirty) Name() string { return "soft-dirty" }

// Start clears the bits. What the baseline doesn't vouch for counts as changed at the first Cut: with Zeroed, what the
// process holds already. Starting again on the same memory is a no-op. Precondition: nothing is written during Start.
func (t *SoftDirty) Start(m memtrack.Memory) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := bind(t.memory, m)
	if s == nil || err != nil {
		return err
	}
	span := s.Span()
	held, err := heldAt(span, t.baseline, func() ([]uint64, error) {
		inFile, err := fileData(span)
		if err != nil {
			return nil, err
		}
		inTable, err := entries(span, ownPage(span))
		return memtrack.Union(inTable, inFile), err
	})
	if err != nil {
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	if err := clearSoftDirty(span.PID); err != nil {
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	if err := memtrack.Prepare(); err != nil {
		return fmt.Errorf("track by %s: %w", t.Name(), err)
	}
	t.ledger.Owe(held)
	t.memory = s
	return nil
}

// ownPage tells the entries of pages the process may have written: in a private mapping, one of the file was only read.
func ownPage(s memtrack.Span) func(entry uint64) bool {
	const entryFile = 1 << 61
	if sharedAt(s) {
		return func(e uint64) bool { return e&(entryPresent|entrySwapped) != 0 }
	}
	return func(e uint64) bool { return e&entrySwapped != 0 || e&(entryPresent|entryFile) == entryPresent }
}

// Cut takes the changed pages and copies them.
func (t *SoftDirty) Cut(ctx context.Context) (*memtrack.Delta, error) {
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

func (t *SoftDirty) take() ([]uint64, memtrack.Memory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memory == nil {
		return nil, nil, fmt.Errorf("tracking has not started: %w", memtrack.ErrEnded)
	}
	if err := t.ledger.Ready(); err != nil {
		return nil, nil, err
	}
	pid := t.memory.Span().PID
	goOn, err := standStill(pid)
	if err != nil {
		return nil, nil, err
	}
	defer goOn()
	pages, err := t.dirty()
	if err != nil {
		return nil, nil, err
	}
	if err := clearSoftDirty(pid); err != nil {
		t.lost = true
		return nil, nil, err
	}
	t.lost = false
	return pages, t.memory, nil
}

// Pending counts the changed pages and leaves them.
func (t *SoftDirty) Pending(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memory == nil {
		return 0, fmt.Errorf("count changed pages: tracking has not started: %w", memtrack.ErrEnded)
	}
	pages, err := t.dirty()
	if err != nil {
		return 0, fmt.Errorf("count changed pages: %w", err)
	}
	return len(memtrack.Union(t.ledger.Owed(), pages)), nil
}

// dirty needs mu.
func (t *SoftDirty) dirty() ([]uint64, error) {
	if t.lost || sharedAt(t.memory.Span()) && swapInUse() { // I7
		return everyPage(t.memory.Pages()), nil
	}
	return entries(t.memory.Span(), func(e uint64) bool { return e&entrySoftDirty != 0 && e&(entryPresent|entrySwapped) != 0 })
}

// Stop ends tracking. An open delta stays readable.
func (t *SoftDirty) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memory = nil
	return nil
}

// entries gives the pages whose pagemap entry passes.
func entries(s memtrack.Span, pass func(entry uint64) bool) (pages []uint64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", s.PID))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	window := make([]byte, min(windowEntries, s.Pages())*entryBytes)
	for page := uint64(0); page < s.Pages(); {
		w := window[:min(uint64(len(window)), (s.Pages()-page)*entryBytes)]
		if _, err := f.ReadAt(w, int64(s.Address(page)/memtrack.PageBytes*entryBytes)); err != nil {
			return nil, fmt.Errorf("read the pagemap of process %d from page %d: %w", s.PID, page, err)
		}
		for ; len(w) > 0; w = w[entryBytes:] {
			if pass(binary.NativeEndian.Uint64(w)) {
				pages = append(pages, page)
			}
			page++
		}
	}
	return pages, nil
}

func clearSoftDirty(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("4"), 0)
}

// swapInUse tells whether the kernel may have taken pages out of the page table. Not knowing is yes.
func swapInUse() bool {
	text, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(text), "\n") > 1
}
