package cas

import (
	"context"
	"time"
)

// Sweep removes chunks that nothing reaches. It is begun before the marking, for from then on it remembers what Put and
// Has were told is there: a chunk that is unmarked, and referred to again meanwhile, stays. It ends with End, always.
type Sweep interface {
	// Measure counts what a Run with the same marks would do, and changes nothing.
	Measure(ctx context.Context, live func(Hash) bool) (SweepStats, error)
	// Run removes, within a budget. live is called from one goroutine. An error leaves the store whole.
	Run(ctx context.Context, live func(Hash) bool, b SweepBudget) (SweepStats, error)
	// End forgets what was referred to. A second call is harmless.
	End()
}

// SweepBudget bounds one Run, so that it may go on beside work that matters more. The zero value sets no bounds.
type SweepBudget struct {
	CopyBytes int64 // of records that live in packs worth compacting; packs beyond it wait for the next sweep. 0: no bound
	// Pace is called with the bytes that were read and written since its last call; it may wait. nil: as fast as it goes.
	Pace func(ctx context.Context, bytes int64) error
}

// SweepStats says what a sweep found and did.
type SweepStats struct {
	Packs        int   `json:"packs"`         // looked at
	RemovedPacks int   `json:"removed_packs"` // of these, empty ones and compacted ones
	MadePacks    int   `json:"made_packs"`    // that hold what was kept of the compacted ones
	LiveChunks   int64 `json:"live_chunks"`   // in the packs looked at
	LiveBytes    int64 `json:"live_bytes"`    // of their records
	DeadChunks   int64 `json:"dead_chunks"`   // some of which stay, in packs that are not worth a copy
	DeadBytes    int64 `json:"dead_bytes"`
	FreedBytes   int64 `json:"freed_bytes"`   // of the removed packs
	WrittenBytes int64 `json:"written_bytes"` // of the made packs
	DamagedPacks int   `json:"damaged_packs"` // not compacted, because a record that lives is damaged
	Postponed    int   `json:"postponed"`     // packs worth compacting, beyond the budget
}

// Damage is one finding of a check of a store's packs.
type Damage struct {
	Pack   string // file or object name
	Hash   Hash   // of the chunk; zero when it is the pack that is damaged
	Offset int64
	Err    error
}

// VerifyStats says what a check read. One that read nothing proves nothing: look at Records.
type VerifyStats struct {
	Packs   int   `json:"packs"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"` // of the packs
	Damages int64 `json:"damages"`
}

// RepairStats says what a repair did.
type RepairStats struct {
	Packs       int      `json:"packs"`        // looked at
	Quarantined []string `json:"quarantined"`  // damaged files, as they were, out of the way
	Salvaged    int64    `json:"salvaged"`     // good records copied from them
	LostRecords int64    `json:"lost_records"` // entries of theirs, with no good record
}

// PackDump is a pack read record by record, for people.
type PackDump struct {
	Name         string       `json:"name"`
	ID           string       `json:"id"`
	Created      time.Time    `json:"created"`
	Sealed       bool         `json:"sealed"`
	Bytes        int64        `json:"bytes"`
	PlainBytes   int64        `json:"plain_bytes"`
	DamagedBytes int64        `json:"damaged_bytes"` // among the records, in no good one
	Records      []PackRecord `json:"records"`
}

// PackRecord is one record of a pack.
type PackRecord struct {
	Hash       Hash   `json:"hash"`
	Kind       string `json:"kind"`
	Codec      string `json:"codec"`
	Offset     int64  `json:"offset"`
	Bytes      int64  `json:"bytes"`
	PlainBytes int    `json:"plain_bytes"`
	NamedBytes int    `json:"named_bytes"`
}
