// Package memtrack knows which pages of a guest's memory changed, and brings absent pages in when they are touched.
//
// Terms: a page is 4 KiB of guest memory, numbered from 0 in the order of the machine's memory image (guest RAM without
// its holes). A cut is the instant at which a set of changed pages is taken; what it gives is a Delta.
// Absent means that the page's bytes are still only in the Source. Absent is never zero (I7).
//
// A tracker owes the pages that a failed or rolled-back cut had taken; its Ledger remembers them until a cut succeeds.
//
// Invariants
//
//   - At most one delta is open per tracker (I5): a second Cut while one is open is ErrDeltaOpen and takes nothing.
//   - A page written is reported by the next Cut, or that Cut fails and the one after reports it. Reporting too much is
//     allowed, reporting too little never; what can't be known counts as changed (I7).
//   - Guest memory is read by Memory.View only, never by a plain load (I6).
//   - A cut copies the changed pages once and hashes nothing, except where comparing hashes is the only way to know (I8).
//
// The pages of a Delta lie in an arena outside the garbage-collected heap; arenas are touched in advance and reused, so
// that inside the pause a copy costs only the copy. All deltas together hold 256 MiB in them; of a cut that is larger, the
// first one of a big guest, the rest lies in a file.
//
// Lock order: Tracker → Ledger → Delta → arena cache. None is held while waiting for a Source.
// Lifetimes: a Tracker and a Pager belong to one machine and end before its process is reaped. A Delta may outlive its
// Tracker; its pages stay readable until it ends.
package memtrack

import (
	"context"
	"errors"
)

// PageBytes is the page size.
const PageBytes = 4096

// Kinds of failure a caller acts on.
var (
	// ErrDeltaOpen: the delta of the last cut has neither been committed nor rolled back (I5).
	ErrDeltaOpen = errors.New("a delta is still open")
	// ErrEnded: the delta, tracker or memory was used after its end.
	ErrEnded = errors.New("used after its end")
	// ErrUnsupported: this operating system or kernel can't do it.
	ErrUnsupported = errors.New("not supported here")
)

// Source is where absent pages come from; *store.Image is one.
type Source interface {
	// ReadSlot fills dst, PageBytes long.
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
	// ReadSlots calls each once for every slot, in any order; data is nil for a zero page and is reused after each returns.
	ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error
	// IsZero tells without reading data.
	IsZero(ctx context.Context, slot uint64) (bool, error)
	Slots() uint64
}

// Memory is a guest's memory as this process may read it (I6): never by a plain load.
type Memory interface {
	Pages() uint64
	// View copies pages, ascending, into dst, len(pages)*PageBytes long.
	View(ctx context.Context, pages []uint64, dst []byte) error
}

// Tracker finds the pages written since the last cut.
type Tracker interface {
	// Start begins to track. What was written before Start counts as changed at the first Cut.
	Start(m Memory) error
	// Cut takes the changed pages and copies them.
	// Preconditions: the machine is paused; no delta is open.
	Cut(ctx context.Context) (*Delta, error)
	// Pending counts the pages written since the last cut without taking them. Precondition: the machine is paused.
	Pending(ctx context.Context) (int, error)
	Stop() error
	// Name says which way it works: "pagemap-scan", "soft-dirty", "hash-compare".
	Name() string
}
