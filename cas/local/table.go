package local

import (
	"sync"

	"flash/cas"
	"flash/cas/pack"
)

// keyBytes of a hash are enough to find a chunk: a false match costs a read, and isn't served.
const keyBytes = 14

type key [keyBytes]byte

func keyOf(h cas.Hash) key { return key(h[:keyBytes]) }

// location is where a record may be.
type location struct {
	pack   *packFile
	offset uint32
	bytes  uint32
}

func (l location) hint() cas.Hint { return cas.Hint{Pack: l.pack.id, Offset: l.offset, Bytes: l.bytes} }

// table is the index of one pack, in memory. A pack has one from its first record until a run covers it.
type table struct {
	pack *packFile

	mu      sync.RWMutex // guards the rest
	records map[key]recordPlace
}

type recordPlace struct{ offset, bytes uint32 }

func newTable(p *packFile, entries []pack.Entry) *table {
	t := &table{pack: p, records: make(map[key]recordPlace, len(entries))}
	t.add(entries)
	return t
}

func (t *table) add(entries []pack.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		t.records[keyOf(e.Hash)] = recordPlace{e.Offset, e.Bytes}
	}
}

func (t *table) find(k key) (location, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.records[k]
	return location{t.pack, r.offset, r.bytes}, ok
}

// keyedPlace is a record as a table knows it, but for its offset.
type keyedPlace struct {
	key   key
	bytes uint32
}

// placesIn lists what the table of p has, by offset. Nothing for a pack that has no table.
func (x *index) placesIn(p *packFile) map[uint32]keyedPlace {
	places := map[uint32]keyedPlace{}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, t := range x.tables {
		if t.pack != p {
			continue
		}
		t.mu.RLock()
		for k, r := range t.records {
			places[r.offset] = keyedPlace{k, r.bytes}
		}
		t.mu.RUnlock()
	}
	return places
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.records)
}
