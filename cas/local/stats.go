package local

import (
	"sync/atomic"

	"flash/cas/pack"
)

// counters count what happened since Open.
type counters struct {
	hintHits, hintMisses, indexHits, notFound atomic.Int64
	putNew, putKnown                          atomic.Int64
	syncs, rescues, seals                     atomic.Int64
	damagedPacks                              atomic.Int64
}

// Stats says what the store holds and what it did since Open.
type Stats struct {
	Packs       int   // files, open ones counted
	PackBytes   int64 // of the files
	PlainBytes  int64 // of all records, uncompressed
	Records     int64 // chunks, those that are there twice counted twice
	IndexTables int   // packs indexed in memory
	IndexRuns   int
	IndexBytes  int64 // of the runs, on disk
	IndexMemory int64 // of the runs, in memory

	HintHits, HintMisses, IndexHits, NotFound int64 // reads
	PutNew, PutKnown                          int64 // chunks
	Syncs, Rescues, Seals                     int64
	DamagedPacks, CorruptChunks               int64 // met since Open
}

// PackBytes is the size of all packs, without asking the disk. It takes some nanoseconds a pack.
func (s *Store) PackBytes() int64 {
	s.packs.mu.RLock()
	defer s.packs.mu.RUnlock()
	total := int64(0)
	for _, p := range s.packs.packs {
		total += p.end.Load()
		if p.sealed.Load() { // and so has a footer
			total += p.records.Load()*pack.EntryBytes + pack.TrailerBytes
		}
	}
	return total
}

// Stats takes some microseconds a pack.
func (s *Store) Stats() Stats {
	c := &s.counters
	st := Stats{
		HintHits: c.hintHits.Load(), HintMisses: c.hintMisses.Load(), IndexHits: c.indexHits.Load(), NotFound: c.notFound.Load(),
		PutNew: c.putNew.Load(), PutKnown: c.putKnown.Load(),
		Syncs: c.syncs.Load(), Rescues: c.rescues.Load(), Seals: c.seals.Load(),
		DamagedPacks: c.damagedPacks.Load(), CorruptChunks: s.badCount.Load(),
	}
	for _, p := range s.Packs() {
		st.Packs++
		st.PackBytes += p.Bytes
		st.PlainBytes += p.PlainBytes
		st.Records += p.Records
	}
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	st.IndexTables, st.IndexRuns = len(s.index.tables), len(s.index.runs)
	for _, r := range s.index.runs {
		st.IndexMemory += r.memoryBytes()
		st.IndexBytes += r.memoryBytes() + r.entries*runEntryBytes + runTrailerBytes
	}
	return st
}
