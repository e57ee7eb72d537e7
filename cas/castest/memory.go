package castest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"flash/cas"
)

// Memory is a cas.Store in a map: simple, correct, and strict. Unlike a real store it computes the hash of every chunk
// it is given, so that a caller that misnames a chunk hears of it at once.
//
// Faults: FailAt makes the nth operation from now fail; Corrupt and Remove damage one chunk; Crash forgets what was not
// synced. An operation is a call of Get, Put, Sync or Has, or one ref of GetMany.
type Memory struct {
	key *[32]byte

	mu       sync.Mutex // guards the rest
	chunks   map[cas.Hash]*memoryChunk
	next     cas.Hint // where the next chunk's pretended record goes
	packs    uint64
	ops      int
	failAt   int // the value of ops at which to fail; 0 never
	failWith error
	closed   bool
}

type memoryChunk struct {
	kind    cas.Kind
	data    []byte
	named   int
	hint    cas.Hint
	durable bool
}

const (
	memoryPackBytes   = 1 << 20 // small, so that tests see several packs
	memoryRecordBytes = 48      // what a record is pretended to cost beside its data
)

var _ cas.Store = (*Memory)(nil)

// NewMemory gives an empty store with plain names.
func NewMemory() *Memory { return NewKeyedMemory(nil) }

// NewKeyedMemory gives an empty store whose names are keyed, unless key is nil.
func NewKeyedMemory(key *[32]byte) *Memory {
	m := &Memory{key: key, chunks: map[cas.Hash]*memoryChunk{}}
	m.beginPack()
	return m
}

// FailAt makes the nth operation from now (1: the next) return err, once. Zero n takes the fault back.
func (m *Memory) FailAt(n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failAt, m.failWith = 0, err
	if n > 0 {
		m.failAt = m.ops + n
	}
}

// Ops is the number of operations so far.
func (m *Memory) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// PackBytes is what packs would take.
func (m *Memory) PackBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := int64(0)
	for _, c := range m.chunks {
		total += int64(len(c.data)) + memoryRecordBytes
	}
	return total
}

// Len is the number of chunks.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.chunks)
}

// Hashes lists what is stored, in no order.
func (m *Memory) Hashes() []cas.Hash {
	m.mu.Lock()
	defer m.mu.Unlock()
	hs := make([]cas.Hash, 0, len(m.chunks))
	for h := range m.chunks {
		hs = append(hs, h)
	}
	return hs
}

// HashesOf lists the chunks of one kind.
func (m *Memory) HashesOf(ctx context.Context, kind cas.Kind) ([]cas.Hash, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.operate(ctx); err != nil {
		return nil, fmt.Errorf("list chunks: %w", err)
	}
	var hs []cas.Hash
	for h, c := range m.chunks {
		if c.kind == kind {
			hs = append(hs, h)
		}
	}
	return hs, nil
}

// Corrupt flips a bit of a stored chunk; false when it is not there.
func (m *Memory) Corrupt(h cas.Hash) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.chunks[h]
	if ok {
		c.data = bytes.Clone(c.data)
		c.data[0] ^= 1
	}
	return ok
}

// Remove loses a stored chunk; false when it is not there.
func (m *Memory) Remove(h cas.Hash) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.chunks[h]
	delete(m.chunks, h)
	return ok
}

// Move gives every chunk a new place, as compaction does: all hints out there become stale.
func (m *Memory) Move() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginPack()
	for _, c := range m.chunks {
		c.hint = m.place(len(c.data))
	}
}

// Crash gives a store that holds what was durable at this moment. The old one goes on, apart.
func (m *Memory) Crash() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := NewKeyedMemory(m.key)
	n.packs = m.packs
	n.beginPack()
	for h, c := range m.chunks {
		if c.durable {
			copied := *c
			n.chunks[h] = &copied
		}
	}
	return n
}

// Hasher gives a new hasher with this store's key.
func (m *Memory) Hasher() cas.Hasher { return cas.NewHasher(m.key) }

// Get appends a chunk's bytes to dst. Hints are not used.
func (m *Memory) Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.operate(ctx); err != nil {
		return dst, fmt.Errorf("get chunk %s: %w", r.Hash, err)
	}
	c, ok := m.chunks[r.Hash]
	if !ok {
		return dst, fmt.Errorf("chunk %s: %w", r.Hash, cas.ErrNotFound)
	}
	if m.Hasher().Sum(c.data[:c.named]) != r.Hash {
		return dst, &cas.CorruptError{Hash: r.Hash, Pack: fmt.Sprintf("memory-%x", c.hint.Pack[:8]),
			Offset: int64(c.hint.Offset), Reason: "its bytes hash to another name"}
	}
	return append(dst, c.data...), nil
}

// GetMany calls each for every ref, in order.
func (m *Memory) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	var buf []byte
	for i, r := range refs {
		data, err := m.Get(ctx, r, buf[:0])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		buf = data
		if err != nil {
			data = nil
		}
		if err := each(i, data, err); err != nil {
			return err
		}
	}
	return nil
}

// Put stores the absent ones among chunks; all or, on an error, none.
func (m *Memory) Put(ctx context.Context, chunks []cas.Chunk, hints []cas.Hint) (cas.PutStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.operate(ctx); err != nil {
		return cas.PutStats{}, fmt.Errorf("put %d chunks: %w", len(chunks), err)
	}
	if hints != nil && len(hints) != len(chunks) {
		return cas.PutStats{}, fmt.Errorf("put %d chunks: room for %d hints", len(chunks), len(hints))
	}
	hasher := m.Hasher()
	for i := range chunks {
		c := &chunks[i]
		if err := c.Check(); err != nil {
			return cas.PutStats{}, fmt.Errorf("put: %w", err)
		}
		if sum := hasher.Sum(c.Data[:c.NamedBytes()]); sum != c.Hash {
			return cas.PutStats{}, fmt.Errorf("put: chunk named %s hashes to %s", c.Hash, sum)
		}
	}
	stats := cas.PutStats{Chunks: len(chunks)}
	for i := range chunks {
		c := &chunks[i]
		have, ok := m.chunks[c.Hash]
		if !ok {
			have = &memoryChunk{kind: c.Kind, data: bytes.Clone(c.Data), named: c.NamedBytes(), hint: m.place(len(c.Data))}
			m.chunks[c.Hash] = have
			stats.NewChunks++
			stats.NewBytes += int64(have.hint.Bytes)
		}
		if hints != nil {
			hints[i] = have.hint
		}
	}
	return stats, nil
}

// Sync makes everything survive Crash.
func (m *Memory) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.operate(ctx); err != nil {
		return fmt.Errorf("sync chunks: %w", err)
	}
	for _, c := range m.chunks {
		c.durable = true
	}
	return nil
}

// Has tells which are present.
func (m *Memory) Has(ctx context.Context, hs []cas.Hash) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.operate(ctx); err != nil {
		return nil, fmt.Errorf("look for %d chunks: %w", len(hs), err)
	}
	present := make([]bool, len(hs))
	for i, h := range hs {
		_, present[i] = m.chunks[h]
	}
	return present, nil
}

// Close ends the store; later operations fail.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// operate counts an operation and gives the error it shall end with. mu is held.
func (m *Memory) operate(ctx context.Context) error {
	m.ops++
	switch {
	case m.closed:
		return fmt.Errorf("the store is closed")
	case m.failAt != 0 && m.ops == m.failAt:
		m.failAt = 0
		return m.failWith
	}
	return ctx.Err()
}

func (m *Memory) beginPack() {
	m.packs++
	m.next = cas.Hint{Offset: 64}
	copy(m.next.Pack[:], "memory")
	binary.LittleEndian.PutUint64(m.next.Pack[8:], m.packs)
}

// place gives the next record's hint.
func (m *Memory) place(dataBytes int) cas.Hint {
	if m.next.Offset > memoryPackBytes {
		m.beginPack()
	}
	h := m.next
	h.Bytes = uint32(dataBytes + memoryRecordBytes)
	m.next.Offset += h.Bytes
	return h
}
