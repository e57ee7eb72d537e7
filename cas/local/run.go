package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sync"
	"sync/atomic"

	"flash/cas"
	"flash/cas/pack"
)

// A run is the sorted index of many sealed packs in a file. It is written once. Format, version 1, little-endian:
//
//	entries    24 bytes each, ascending by key, then pack number, then offset:
//	           0 14 key: the hash's first bytes
//	          14  3 pack number, into the pack table
//	          17  3 length of the record
//	          20  4 offset of the record
//	packs      16 bytes each: pack ids
//	fan-out    4 bytes each, 2^bits + 1 of them: how many entries have keys whose top bits are less than i
//	filter     64 bytes each: blocks of a Bloom filter, see filter.go
//	trailer    64 bytes:
//	           0  8 magic "FLSHRUN\x01"
//	           8  8 number of entries
//	          16  4 number of packs
//	          20  4 bits of the fan-out
//	          24  4 number of filter blocks
//	          28  4 CRC-32C of the entries; checked only when a chunk isn't found, for it means reading them all
//	          32  4 CRC-32C of packs, fan-out and filter
//	          36 24 zero
//	          60  4 CRC-32C of bytes 0–59
//
// Packs, fan-out and filter are kept in memory, about 1.3 bytes a chunk. A look-up reads one bucket of the fan-out, some
// 64 entries, and only if the filter doesn't rule the key out.
const (
	runMagic        = "FLSHRUN\x01"
	runEntryBytes   = 24
	runTrailerBytes = 64
	runBucketSize   = 64 // entries of a bucket, about
	maxRunPacks     = 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type run struct {
	seq      uint64 // of its file name; newer runs have higher ones
	path     string
	file     File
	entries  int64
	packIDs  []cas.PackID
	packs    []*packFile // by pack number; nil: not in the folder
	bits     uint
	fanout   []uint32
	filter   filter
	crc      uint32
	verified atomic.Bool
}

// openRun loads what is kept in memory and checks it. It closes f when it fails.
func openRun(f File, path string, seq uint64) (*run, error) {
	r, err := loadRun(f, path, seq)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("index run %s: %w", baseName(path), err)
	}
	return r, nil
}

func loadRun(f File, path string, seq uint64) (*run, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	var t [runTrailerBytes]byte
	if size < runTrailerBytes {
		return nil, fmt.Errorf("%d bytes: %w", size, pack.ErrDamaged)
	}
	if _, err := f.ReadAt(t[:], size-runTrailerBytes); err != nil {
		return nil, fmt.Errorf("read the trailer: %w", err)
	}
	if string(t[:8]) != runMagic || binary.LittleEndian.Uint32(t[60:]) != crc32.Checksum(t[:60], castagnoli) {
		return nil, fmt.Errorf("no trailer: %w", pack.ErrDamaged)
	}
	r := &run{seq: seq, path: path, file: f,
		entries: int64(binary.LittleEndian.Uint64(t[8:])), bits: uint(binary.LittleEndian.Uint32(t[20:])),
		crc: binary.LittleEndian.Uint32(t[28:])}
	packCount, blockCount := int64(binary.LittleEndian.Uint32(t[16:])), int64(binary.LittleEndian.Uint32(t[24:]))
	if r.entries < 0 || r.entries > size/runEntryBytes || r.bits > 31 {
		return nil, fmt.Errorf("%d entries, %d bits of fan-out in %d bytes: %w", r.entries, r.bits, size, pack.ErrDamaged)
	}
	fanoutCount := int64(1)<<r.bits + 1
	tables := packCount*16 + fanoutCount*4 + blockCount*filterBlockBytes
	if r.entries*runEntryBytes+tables+runTrailerBytes != size {
		return nil, fmt.Errorf("the parts don't add up to %d bytes: %w", size, pack.ErrDamaged)
	}
	p := make([]byte, tables)
	if _, err := f.ReadAt(p, r.entries*runEntryBytes); err != nil {
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	if crc32.Checksum(p, castagnoli) != binary.LittleEndian.Uint32(t[32:]) {
		return nil, fmt.Errorf("checksum of the tables is wrong: %w", pack.ErrDamaged)
	}
	for ; packCount > 0; packCount-- {
		r.packIDs = append(r.packIDs, cas.PackID(p[:16]))
		p = p[16:]
	}
	r.packs = make([]*packFile, len(r.packIDs))
	r.fanout = make([]uint32, fanoutCount)
	for i := range r.fanout {
		r.fanout[i] = binary.LittleEndian.Uint32(p[i*4:])
		if i > 0 && r.fanout[i] < r.fanout[i-1] {
			return nil, fmt.Errorf("the fan-out falls at %d: %w", i, pack.ErrDamaged)
		}
	}
	if r.fanout[0] != 0 || int64(r.fanout[fanoutCount-1]) != r.entries {
		return nil, fmt.Errorf("the fan-out doesn't end at %d: %w", r.entries, pack.ErrDamaged)
	}
	r.filter = parseFilter(p[fanoutCount*4:])
	return r, nil
}

// bind gives the run's pack numbers their packs. Those that are not there any more stay nil.
func (r *run) bind(byID func(cas.PackID) *packFile) {
	for i, id := range r.packIDs {
		r.packs[i] = byID(id)
	}
}

// bucketBuffers hold a bucket; they would escape to the heap at every look-up.
var bucketBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4*runBucketSize*runEntryBytes); return &b }}

// find appends the places of k. An error means that the run can't be read.
func (r *run) find(dst []location, k key) ([]location, error) {
	if !r.filter.mayHold(k) {
		return dst, nil
	}
	bucket := keyTop(k) >> (64 - r.bits) // a shift by 64 gives 0
	first, last := int64(r.fanout[bucket]), int64(r.fanout[bucket+1])
	if first == last {
		return dst, nil
	}
	pooled := bucketBuffers.Get().(*[]byte)
	defer bucketBuffers.Put(pooled)
	if n := int((last - first) * runEntryBytes); cap(*pooled) < n {
		*pooled = make([]byte, n)
	}
	p := (*pooled)[:(last-first)*runEntryBytes]
	if _, err := r.file.ReadAt(p, first*runEntryBytes); err != nil {
		return dst, fmt.Errorf("index run %s: read entries %d to %d: %w", baseName(r.path), first, last, err)
	}
	low, high := 0, len(p)/runEntryBytes
	for low < high {
		mid := int(uint(low+high) / 2)
		if bytes.Compare(p[mid*runEntryBytes:mid*runEntryBytes+keyBytes], k[:]) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for p = p[low*runEntryBytes:]; len(p) > 0 && key(p[:keyBytes]) == k; p = p[runEntryBytes:] {
		e := parseRunEntry(p)
		if int(e.packNumber) < len(r.packs) && r.packs[e.packNumber] != nil {
			dst = append(dst, location{r.packs[e.packNumber], e.offset, e.bytes})
		}
	}
	return dst, nil
}

// verify reads all entries. It does so once in the life of the run.
func (r *run) verify() error {
	if r.verified.Load() {
		return nil
	}
	crc, buf := uint32(0), make([]byte, 1<<20)
	for at, end := int64(0), r.entries*runEntryBytes; at < end; {
		p := buf[:min(int64(len(buf)), end-at)]
		if _, err := r.file.ReadAt(p, at); err != nil {
			return fmt.Errorf("index run %s: %w", baseName(r.path), err)
		}
		crc = crc32.Update(crc, castagnoli, p)
		at += int64(len(p))
	}
	if crc != r.crc {
		return fmt.Errorf("index run %s: checksum of the entries is %08x, want %08x: %w", baseName(r.path), crc, r.crc, pack.ErrDamaged)
	}
	r.verified.Store(true)
	return nil
}

// memoryBytes is what the run keeps in memory.
func (r *run) memoryBytes() int64 {
	return int64(len(r.packIDs))*24 + int64(len(r.fanout))*4 + int64(len(r.filter))*8
}

type runEntry struct {
	key        key
	packNumber uint32
	bytes      uint32
	offset     uint32
}

func parseRunEntry(p []byte) runEntry {
	return runEntry{key(p[:keyBytes]), uint24(p[14:]), uint24(p[17:]), binary.LittleEndian.Uint32(p[20:])}
}

func appendRunEntry(dst []byte, e runEntry) []byte {
	dst = append(dst, e.key[:]...)
	dst = append(dst, byte(e.packNumber), byte(e.packNumber>>8), byte(e.packNumber>>16))
	dst = append(dst, byte(e.bytes), byte(e.bytes>>8), byte(e.bytes>>16))
	return binary.LittleEndian.AppendUint32(dst, e.offset)
}

func uint24(p []byte) uint32 { return uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 }

// keyTop is the key's order in 64 bits.
func keyTop(k key) uint64 { return binary.BigEndian.Uint64(k[:8]) }

// fanoutBits makes buckets of about runBucketSize entries.
func fanoutBits(entries int64) uint { return uint(bits.Len64(uint64(entries / runBucketSize))) }
