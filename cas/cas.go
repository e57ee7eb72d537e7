// Package cas says what a chunk is: bytes named by their hash, and what any store of them promises.
//
// Terms: a chunk is up to MaxChunkBytes of plain bytes; its Hash is the BLAKE3-256 of those bytes (keyed, where a
// store is encrypted). A pack is a file or object that holds many chunks. A Hint says in which pack a chunk was last
// seen; it saves a look-up and is never trusted: the bytes found there must still hash to the name.
//
// This package knows nothing of files, object storage, snapshots or machines.
package cas

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

const (
	// SlotBytes is the size of a page or block chunk.
	SlotBytes = 4096
	// MaxChunkBytes bounds the plain bytes of one chunk.
	MaxChunkBytes = 1 << 20
)

// Hash names a chunk: BLAKE3-256 of its plain bytes.
type Hash [32]byte

// String gives the hash in lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero tells whether h is the all-zero value, which names nothing.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads 64 hex digits.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != 2*len(h) {
		return h, fmt.Errorf("hash %q: want %d hex digits, have %d", s, 2*len(h), len(s))
	}
	_, err := hex.Decode(h[:], []byte(s))
	return h, err
}

// MarshalText writes the hash as String does.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	read, err := ParseHash(string(text))
	if err == nil {
		*h = read
	}
	return err
}

// Kind says what a chunk's plain bytes are. It is stored beside the chunk so that packs alone describe themselves.
type Kind uint8

const (
	KindData     Kind = 1 // a page or a block, SlotBytes long
	KindNode     Kind = 2 // a node of an image tree (store/manifest)
	KindSnapshot Kind = 3 // a snapshot record (store/manifest)
	KindNote     Kind = 4 // what snapshots are named, for when nothing but the packs is left (store/manifest)
)

func (k Kind) String() string {
	switch k {
	case KindData:
		return "data"
	case KindNode:
		return "node"
	case KindSnapshot:
		return "snapshot"
	case KindNote:
		return "note"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Chunk is one chunk on its way into a store.
//
// Named is the number of leading bytes of Data that Hash covers; zero means all of them. The rest, the annotation,
// is protected by the pack record's checksum only: location hints live there, so that moving chunks changes no names.
type Chunk struct {
	Hash  Hash
	Kind  Kind
	Named int
	Data  []byte
}

// PackID is the random identity a pack is given when it is begun. It never changes, not even when the pack is sealed
// and the file takes the name of its content.
type PackID [16]byte

// Hint says where a chunk's record was last seen: the record's first byte and its whole length in the pack.
// The zero Hint means "not known".
type Hint struct {
	Pack   PackID
	Offset uint32
	Bytes  uint32
}

// IsZero tells whether the hint says nothing.
func (h Hint) IsZero() bool { return h == Hint{} }

// Ref asks for a chunk by name, with a hint that may be zero or stale.
type Ref struct {
	Hash Hash
	Hint Hint
}

// PutStats counts what one Put did.
type PutStats struct {
	Chunks    int   // chunks given
	NewChunks int   // chunks that were absent and are now stored
	NewBytes  int64 // bytes appended to packs for them, headers included
}

// Add sums two counts.
func (s PutStats) Add(o PutStats) PutStats {
	return PutStats{s.Chunks + o.Chunks, s.NewChunks + o.NewChunks, s.NewBytes + o.NewBytes}
}

// Hasher names chunks for one store. It is not safe for concurrent use; take one a goroutine.
type Hasher interface{ Sum(data []byte) Hash }

// Store keeps chunks. All methods are safe for concurrent use.
type Store interface {
	// Hasher gives a new hasher with this store's key.
	Hasher() Hasher
	// Get appends the chunk's plain bytes (annotation included) to dst. A nil error means that the hash was checked.
	// Errors: ErrNotFound, *CorruptError.
	Get(ctx context.Context, r Ref, dst []byte) ([]byte, error)
	// GetMany reads many chunks with as few and as long reads as it can and calls each once for every ref, in any order,
	// from one goroutine at a time. data is reused after each returns. It ends early only when each returns an error.
	GetMany(ctx context.Context, refs []Ref, each func(i int, data []byte, err error) error) error
	// Put stores the absent ones among chunks and fills hints, which is nil or as long as chunks, with the place of every one.
	// They are readable on return and durable after Sync. Put keeps no reference to Data.
	Put(ctx context.Context, chunks []Chunk, hints []Hint) (PutStats, error)
	// Sync makes everything durable that was Put before Sync was called.
	Sync(ctx context.Context) error
	// Has tells which are present.
	Has(ctx context.Context, hs []Hash) ([]bool, error)
	io.Closer
}

// Kinds of failure a caller acts on.
var (
	// ErrNotFound: no chunk of that name.
	ErrNotFound error = notFoundError{}
	// ErrCorrupt is what every *CorruptError is.
	ErrCorrupt = errors.New("chunk is corrupt")
	// ErrUnavailable: a tier that may have the chunk can't be asked right now. Asking again may help.
	ErrUnavailable = errors.New("a tier that may have the chunk can't be asked")
	// ErrNoSpace: the medium is full, or below the reserve the store keeps free. Nothing was lost.
	ErrNoSpace = errors.New("no space left for chunks")
)

type notFoundError struct{}

func (notFoundError) Error() string { return "chunk not found" }

// Permanent tells a pager that asking again is of no use.
func (notFoundError) Permanent() bool { return true }

// CorruptError carries the evidence of a chunk whose bytes do not match its name.
type CorruptError struct {
	Hash   Hash
	Pack   string // the pack's file or object name
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("chunk %s in pack %s at offset %d is corrupt: %s", e.Hash, e.Pack, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Permanent tells a pager that asking again is of no use.
func (e *CorruptError) Permanent() bool { return true }
