package remote

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"sync"
	"time"

	"flash/cas"
	"flash/cas/pack"
)

// object is a pack in the bucket. All but named is fixed.
type object struct {
	id         cas.PackID
	hash       cas.Hash
	bytes      int64
	plainBytes int64
	created    time.Time
	entries    int

	slot  uint32
	named int // catalogues that list it; guarded by index.mu. 0: gone
}

func (o *object) key() string  { return packKey(o.hash) }
func (o *object) name() string { return pack.FileName(o.hash) }
func (o *object) recordsEnd() int64 {
	return o.bytes - int64(o.entries)*pack.EntryBytes - pack.TrailerBytes
}

// place is where a record is.
type place struct {
	object        *object
	offset, bytes uint32
}

func (p place) end() int64 { return int64(p.offset) + int64(p.bytes) }

// possible tells whether a record can be there, without reading.
func (p place) possible() bool {
	return p.offset >= pack.HeaderBytes && p.bytes >= minRecordBytes && p.bytes <= pack.MaxRecordBytes && p.end() <= p.object.recordsEnd()
}

// keyBytes of a hash are enough to find a chunk and to call it present: 128 bits.
const keyBytes = 16

// indexed is an entry in memory, 28 bytes.
type indexed struct {
	key           [keyBytes]byte
	slot          uint32 // of the object
	offset, bytes uint32
}

func compareIndexed(a, b indexed) int {
	if c := bytes.Compare(a.key[:], b.key[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.slot, b.slot)
}

// index is what the catalogue says, in memory: sorted runs, each at least twice as long as the next, so there are few.
type index struct {
	mu         sync.RWMutex // guards the rest
	catalogues map[cas.Hash]*catalogue
	objects    []*object                // by slot; nil: no catalogue names it any more
	byID       map[cas.PackID][]*object // mostly one; the last is the newest known
	byHash     map[cas.Hash]*object
	runs       [][]indexed
	total      int // entries in runs
	dead       int // of these, of objects that are gone
}

// catalogue is one that was read.
type catalogue struct {
	key     string // the bucket's
	hash    cas.Hash
	bytes   int64
	round   uint64 // of the newest Refresh that had begun when it was added
	objects []*object
}

func newIndex() index {
	return index{catalogues: map[cas.Hash]*catalogue{}, byID: map[cas.PackID][]*object{}, byHash: map[cas.Hash]*object{}}
}

// add takes a catalogue in. One that is known, under whatever key, gets this key.
func (x *index) add(c *catalogue, packs []Catalogued) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.catalogues[c.hash]; known != nil {
		known.key, known.round = c.key, c.round
		return
	}
	x.catalogues[c.hash] = c
	total := 0
	for i := range packs {
		if x.byHash[packs[i].ContentHash] == nil {
			total += len(packs[i].Entries)
		}
	}
	run := make([]indexed, 0, total)
	for i := range packs {
		p := &packs[i]
		o := x.byHash[p.ContentHash]
		if o == nil {
			o = &object{id: p.ID, hash: p.ContentHash, bytes: p.Bytes, plainBytes: p.PlainBytes, created: p.Created,
				entries: len(p.Entries), slot: uint32(len(x.objects))}
			x.objects = append(x.objects, o)
			x.byID[o.id] = append(x.byID[o.id], o)
			x.byHash[o.hash] = o
			for _, e := range p.Entries {
				run = append(run, indexed{[keyBytes]byte(e.Hash[:keyBytes]), o.slot, e.Offset, e.Bytes})
			}
		}
		o.named++
		c.objects = append(c.objects, o)
	}
	slices.SortFunc(run, compareIndexed)
	x.push(run)
}

// push adds a run, and merges while the one before isn't twice as long. mu is held.
func (x *index) push(run []indexed) {
	if len(run) == 0 {
		return
	}
	x.total += len(run)
	for n := len(x.runs); n > 0 && len(x.runs[n-1]) < 2*len(run); n-- {
		run = mergeRuns(x.runs[n-1], run)
		x.runs = x.runs[:n-1]
	}
	x.runs = append(x.runs, run)
}

func mergeRuns(a, b []indexed) []indexed {
	merged := make([]indexed, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareIndexed(a[0], b[0]) <= 0 {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// forget takes out the catalogues for which gone is true, and the objects that none names any more, which it gives.
func (x *index) forget(gone func(c *catalogue) bool) []*object {
	x.mu.Lock()
	defer x.mu.Unlock()
	var lost []*object
	for hash, c := range x.catalogues {
		if !gone(c) {
			continue
		}
		delete(x.catalogues, hash)
		for _, o := range c.objects {
			if o.named--; o.named == 0 {
				lost = append(lost, o)
			}
		}
	}
	for _, o := range lost {
		x.objects[o.slot] = nil
		x.dead += o.entries
		delete(x.byHash, o.hash)
		if twins := slices.DeleteFunc(slices.Clone(x.byID[o.id]), func(t *object) bool { return t == o }); len(twins) > 0 {
			x.byID[o.id] = twins // a repaired pack has the id of the damaged one
		} else {
			delete(x.byID, o.id)
		}
	}
	if x.dead*2 > x.total {
		x.sift()
	}
	return lost
}

// sift drops the entries of objects that are gone. mu is held.
func (x *index) sift() {
	runs := x.runs
	x.runs, x.total, x.dead = nil, 0, 0
	for _, run := range runs {
		kept := slices.DeleteFunc(run, func(e indexed) bool { return x.objects[e.slot] == nil })
		x.push(slices.Clone(kept)) // in as much room as it needs
	}
}

// locate appends every place of a chunk, those of the newest packs first.
func (x *index) locate(dst []place, h cas.Hash) []place {
	key := [keyBytes]byte(h[:keyBytes])
	first := len(dst)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, run := range x.runs {
		at := sort.Search(len(run), func(i int) bool { return bytes.Compare(run[i].key[:], key[:]) >= 0 })
		for ; at < len(run) && run[at].key == key; at++ {
			if o := x.objects[run[at].slot]; o != nil {
				dst = append(dst, place{o, run[at].offset, run[at].bytes})
			}
		}
	}
	if len(dst)-first > 1 {
		slices.SortFunc(dst[first:], func(a, b place) int { return b.object.created.Compare(a.object.created) })
	}
	return dst
}

// hinted gives the place a hint names, if the pack is there.
func (x *index) hinted(h cas.Hint) (place, bool) {
	if h.IsZero() {
		return place{}, false
	}
	x.mu.RLock()
	twins := x.byID[h.Pack]
	x.mu.RUnlock()
	if len(twins) == 0 {
		return place{}, false
	}
	p := place{twins[len(twins)-1], h.Offset, h.Bytes}
	return p, p.possible()
}

// all gives the objects, oldest first.
func (x *index) all() []*object {
	x.mu.RLock()
	objects := make([]*object, 0, len(x.byHash))
	for _, o := range x.byHash {
		objects = append(objects, o)
	}
	x.mu.RUnlock()
	slices.SortFunc(objects, func(a, b *object) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return bytes.Compare(a.hash[:], b.hash[:])
	})
	return objects
}

// called gives the objects with an id.
func (x *index) called(id cas.PackID) []*object {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.byID[id])
}

func (x *index) named(contentHash cas.Hash) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byHash[contentHash] != nil
}
