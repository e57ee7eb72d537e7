package remote

import "sync/atomic"

type counters struct {
	rangedGets, fetchedBytes          atomic.Int64
	windowHits, windowMisses, badOnes atomic.Int64
	refreshes, cataloguesRead         atomic.Int64
}

// Stats says what is known of the bucket, and what was done since Open.
type Stats struct {
	Catalogues int `json:"catalogues"`
	Packs      int `json:"packs"`
	Entries    int `json:"entries"` // of the packs
	IndexBytes int `json:"index_bytes"`

	RangedGets     int64 `json:"ranged_gets"`
	FetchedBytes   int64 `json:"fetched_bytes"` // by them
	WindowHits     int64 `json:"window_hits"`   // windows that were cached
	WindowMisses   int64 `json:"window_misses"`
	BadWindows     int64 `json:"bad_windows"` // dropped, and fetched again
	CachedBytes    int64 `json:"cached_bytes"`
	Refreshes      int64 `json:"refreshes"`
	CataloguesRead int64 `json:"catalogues_read"` // from the bucket
}

// Stats takes some microseconds.
func (r *Remote) Stats() Stats {
	c := &r.counters
	st := Stats{RangedGets: c.rangedGets.Load(), FetchedBytes: c.fetchedBytes.Load(), WindowHits: c.windowHits.Load(),
		WindowMisses: c.windowMisses.Load(), BadWindows: c.badOnes.Load(), CachedBytes: r.cache.size(),
		Refreshes: c.refreshes.Load(), CataloguesRead: c.cataloguesRead.Load()}
	r.index.mu.RLock()
	defer r.index.mu.RUnlock()
	st.Catalogues, st.Packs, st.Entries = len(r.index.catalogues), len(r.index.byHash), r.index.total-r.index.dead
	for _, run := range r.index.runs {
		st.IndexBytes += cap(run) * indexedBytes
	}
	return st
}

const indexedBytes = 28 // of an indexed
