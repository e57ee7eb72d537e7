package tiered

import "sync/atomic"

type counters struct{ farChunks, farBytes, damagedNear, outages atomic.Int64 }

// Stats says what fars were needed for since New.
type Stats struct {
	FarChunks   int64 `json:"far_chunks"`   // served by a far
	FarBytes    int64 `json:"far_bytes"`    // plain, of these
	DamagedNear int64 `json:"damaged_near"` // of these, chunks that are damaged near
	Outages     int64 `json:"outages"`      // chunks that near lacks, and a far couldn't tell
}

// Stats takes no time.
func (s *Store) Stats() Stats {
	c := &s.counters
	return Stats{c.farChunks.Load(), c.farBytes.Load(), c.damagedNear.Load(), c.outages.Load()}
}
