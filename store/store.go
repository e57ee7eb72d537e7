// Package store gives chunks their meaning: snapshots made of images, the history of each VM, pins and the ledger.
//
// Terms: an image is a fixed number of equal slots (4 KiB), each a chunk or zero: guest memory, a disk, a kernel, the
// device state are all images. A snapshot is a set of images and some metadata, read-only for ever. A VM's history is a
// tree of numbered checkpoints, each naming a snapshot; its head is the checkpoint the running guest descends from.
//
// What never changes (pages, tree nodes, snapshot records; see store/manifest) is chunks. What changes is in Badger,
// under the keys of keys.go, and notes in the packs tell of it, so that it can be made again (notes.go, Rebuild).
//
// Invariants
//
//   - A checkpoint or a bundle exists from the one synced Badger transaction that names it, never before; all chunks it
//     reaches are durable by then (I3).
//   - Reading an image never asks Badger, and costs at most two node reads a level, however long the history is.
//   - Everything an open Txn has put or found, and all it descends from, is a root of Mark until it ends (I4).
//   - A record in Badger is read, changed and written under Store.write, so Badger need not detect conflicts.
//
// Lock order: naming or cataloguing, then life (read), then write. Txn.mu, Store.mu, notes.mu are leaves, never held together nor across I/O.
package store

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// SnapshotID names a snapshot: the hash of its record.
type SnapshotID = cas.Hash

// Changes is a delta of one image: the changed slots in ascending order and their new bytes.
// memtrack.Delta and blockdelta.Delta satisfy it.
type Changes interface {
	Slots() iter.Seq[uint64]
	// ReadSlot fills dst, SlotBytes long. It is called from many goroutines at once.
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
}

// Config says where the store's mutable part lives and what keeps its chunks.
type Config struct {
	Dir     string           // folder of the Badger database; made if absent
	Chunks  cas.Store        // closed by the caller, after Close
	Now     func() time.Time // nil: time.Now
	Workers int              // goroutines that hash and compare; 0: GOMAXPROCS
	Log     *slog.Logger     // nil: none

	// Anew lets a database be made where there is none though there are chunks. Without, that is refused: it was lost, and
	// the first gc of a new one would take everything.
	Anew bool

	// Trial runs TryOpen(dir) in another process, and gives DiedTrying when that dies. Open asks for it where the
	// database was not closed the last time. nil: a damaged database may kill this process.
	Trial func(ctx context.Context, dir string) error
}

// Store is open until Close. All methods are safe for concurrent use.
type Store struct {
	dir     string
	chunks  cas.Store
	now     func() time.Time
	log     *slog.Logger
	workers int
	lock    *dirLock
	nodes   *nodeReader
	scratch sync.Pool // of *scratch

	life   sync.RWMutex // held for reading while db is used; Close takes it
	db     *badger.DB
	closed bool // guarded by life

	write        sync.Mutex // one read-modify-write of db at a time
	witness      *witness
	beforeCommit func() error
	freeBytes    func(dir string) (uint64, error)

	naming      nameLocks // of VMs and bundles, held while their notes are written and their names change
	notes       noteBook
	cataloguing sync.Mutex // one catalogue is written at a time

	open    sync.WaitGroup // open transactions
	turn    chan struct{}  // holds one token while gc, check or repair runs
	garbage garbageMeter
	budget  atomic.Int64 // of the packs; 0: none

	mu      sync.Mutex // guards the rest
	closing bool
	txns    map[*Txn]struct{}
	pins    map[SnapshotID]int
}

// Kinds of failure a caller acts on. ErrCorrupt is cas.ErrCorrupt.
var (
	ErrNotFound = errors.New("not found in the store")
	ErrExists   = errors.New("exists already in the store")
	ErrRefMoved = errors.New("the head has moved meanwhile")
	ErrLocked   = errors.New("the store is in use by another process")
	ErrFormat   = manifest.ErrFormat
	ErrCorrupt  = cas.ErrCorrupt
	ErrClosed   = errors.New("the store is closed")
)
