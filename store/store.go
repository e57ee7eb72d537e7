// Package store gives chunks their meaning: snapshots made of images, the history of each VM, pins and the ledger.
//
// Terms: an image is a fixed number of equal slots (4 KiB), each a chunk or zero: guest memory, a disk, a kernel, the
// device state are all images. A snapshot is a set of images and some metadata, read-only for ever. A VM's history is a
// tree of numbered checkpoints, each naming a snapshot; its head is the checkpoint the running guest descends from.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"time"

	"flash/cas"
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
}

// Store is open until Close. All methods are safe for concurrent use.
type Store struct{}

// Open opens or creates. ErrLocked when another process has it.
func Open(ctx context.Context, c Config) (*Store, error) { panic("contract") }

// Close waits for open transactions to end.
func (s *Store) Close() error { panic("contract") }

// Begin starts a snapshot that descends from parent (zero: from nothing). Until it ends, everything it has put is a root of gc.
func (s *Store) Begin(ctx context.Context, parent SnapshotID) (*Txn, error) { panic("contract") }

// Txn is a snapshot in the making. Not safe for concurrent use, except that PutImage of different images may run at once.
type Txn struct{}

// ImageSpec names an image and gives its exact length. Slots = ceil(Bytes / 4096); the last slot is padded with zeros.
type ImageSpec struct {
	Name  string // "mem", "disk0", "state", "kernel", "initrd"
	Bytes uint64
}

// ImageStats counts what putting one image did.
type ImageStats struct {
	Slots, Zero, Same, Known, New uint64 // slots given; of them zero, equal to the parent's slot, already stored, stored now
	cas.PutStats                         // of data and tree nodes together
}

// PutImage stores parent's image of that name with the changed slots replaced. Without such an image in the parent, or
// with one of another length, every slot that is not given is zero.
func (t *Txn) PutImage(ctx context.Context, spec ImageSpec, ch Changes) (ImageStats, error) {
	panic("contract")
}

// PutBytes stores p as the image name. Used for device state, kernels, and other whole files; equal slots of the
// parent's image of that name are shared.
func (t *Txn) PutBytes(ctx context.Context, name string, p []byte) (ImageStats, error) {
	panic("contract")
}

// Keep carries images of the parent over unchanged. Images neither put nor kept are not in the new snapshot.
func (t *Txn) Keep(names ...string) error { panic("contract") }

// Meta is what a snapshot says about itself. It is encoded with sorted keys.
type Meta struct {
	Kind    string            // "bundle" or "checkpoint"; anything else is refused
	Created time.Time         // UTC
	Facts   map[string]string // engine, machine type, CPU model, agent protocol, bundle, … ; see vmm.Facts
}

// Move says which name the new snapshot gets. Exactly one of VM and Bundle is set.
type Move struct {
	Bundle string // names the snapshot as this bundle, replacing an older one

	VM         string // appends a checkpoint to this VM's history and, unless KeepHead, moves its head there
	ExpectHead int    // the head the caller started from; ErrRefMoved when it moved meanwhile
	KeepHead   bool
	Label      string
	Pinned     bool
}

// Commit makes the snapshot durable and then visible, both or neither: chunks are synced before the one synced
// transaction that names it. For a VM the new checkpoint's Number is in the result.
func (t *Txn) Commit(ctx context.Context, m Meta, mv Move) (*Checkpoint, error) { panic("contract") }

// Abort forgets. A no-op after Commit.
func (t *Txn) Abort() {}

// Snapshot is an open snapshot.
type Snapshot struct{}

// Snapshot opens one by id. ErrNotFound, ErrCorrupt.
func (s *Store) Snapshot(ctx context.Context, id SnapshotID) (*Snapshot, error) { panic("contract") }

func (sn *Snapshot) ID() SnapshotID     { panic("contract") }
func (sn *Snapshot) Parent() SnapshotID { panic("contract") }
func (sn *Snapshot) Meta() Meta         { panic("contract") }
func (sn *Snapshot) Images() []ImageSpec {
	panic("contract")
}

// Image opens an image. ErrNotFound when the snapshot has none of that name.
func (sn *Snapshot) Image(ctx context.Context, name string) (*Image, error) { panic("contract") }

// Image is a read-only view. Opening and reading cost the same whatever the length of the history.
// It satisfies memtrack.Source and blockdelta.Base.
type Image struct{}

func (im *Image) Bytes() uint64 { panic("contract") }
func (im *Image) Slots() uint64 { panic("contract") }

// ReadSlot fills dst, SlotBytes long; a zero slot is zeros.
func (im *Image) ReadSlot(ctx context.Context, slot uint64, dst []byte) error { panic("contract") }

// ReadSlots reads many slots with few long reads and calls each once for every slot, in any order, from one goroutine
// at a time. data is nil for a zero slot and is reused after each returns.
func (im *Image) ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error {
	panic("contract")
}

// IsZero tells without reading data whether a slot is zero.
func (im *Image) IsZero(ctx context.Context, slot uint64) (bool, error) { panic("contract") }

// ReadAll gives the whole image; for device state and kernels. Refused above 256 MiB.
func (im *Image) ReadAll(ctx context.Context) ([]byte, error) { panic("contract") }

// Diff yields the slots in which two images of one length differ, without reading shared subtrees.
func (im *Image) Diff(ctx context.Context, other *Image) iter.Seq2[uint64, error] { panic("contract") }

// VM is the record of one VM. Spec is the host's own JSON, opaque here.
type VM struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Spec    json.RawMessage `json:"spec"`
	State   json.RawMessage `json:"state"` // what the host last knew: running, stopped, pid, …
	Bundle  SnapshotID      `json:"bundle"`
	Head    int             `json:"head"` // -1: no checkpoint yet
	Next    int             `json:"next"` // the number the next checkpoint gets; starts at 1
}

// Checkpoint is one entry of a VM's history.
type Checkpoint struct {
	Number   int        `json:"number"` // 1, 2, 3 …; 0 is the fork point of a forked VM
	Parent   int        `json:"parent"` // -1: none
	Snapshot SnapshotID `json:"snapshot"`
	Label    string     `json:"label"`
	Created  time.Time  `json:"created"`
	ExitCode *int       `json:"exit_code"`
	Pinned   bool       `json:"pinned"`
	NewBytes int64      `json:"new_bytes"` // appended to packs for it, metadata included
	From     *ForkPoint `json:"from,omitempty"`
}

// ForkPoint names the checkpoint a VM was forked from.
type ForkPoint struct {
	VM     string `json:"flashvm"`
	Number int    `json:"checkpoint"`
}

// CreateVM adds a VM. With from set it is a fork: its history begins with checkpoint 0, the fork point, which is its
// head, and its bundle is the parent's. ErrExists, ErrNotFound.
func (s *Store) CreateVM(ctx context.Context, v VM, from *ForkPoint) error { panic("contract") }

// DeleteVM removes the VM, its history and its ledger. The chunks go with the next gc.
func (s *Store) DeleteVM(ctx context.Context, id string) error { panic("contract") }

func (s *Store) VM(ctx context.Context, id string) (VM, error) { panic("contract") }
func (s *Store) VMs(ctx context.Context) ([]VM, error)         { panic("contract") } // by id
func (s *Store) SetVMSpec(ctx context.Context, id string, spec json.RawMessage) error {
	panic("contract")
}
func (s *Store) SetVMState(ctx context.Context, id string, state json.RawMessage) error {
	panic("contract")
}

// History is ascending by number.
func (s *Store) History(ctx context.Context, vm string) ([]Checkpoint, error) { panic("contract") }
func (s *Store) Checkpoint(ctx context.Context, vm string, n int) (Checkpoint, error) {
	panic("contract")
}

// MoveHead makes n the head and records kind ("rewind", "resume") in the ledger. Nothing is removed.
func (s *Store) MoveHead(ctx context.Context, vm string, n int, kind string) error { panic("contract") }
func (s *Store) SetPinned(ctx context.Context, vm string, n int, pinned bool) error {
	panic("contract")
}
func (s *Store) SetExitCode(ctx context.Context, vm string, n int, code int) error { panic("contract") }

// Bundle is a named snapshot of Kind "bundle".
type Bundle struct {
	Name     string     `json:"name"`
	Snapshot SnapshotID `json:"snapshot"`
	Created  time.Time  `json:"created"`
}

func (s *Store) Bundles(ctx context.Context) ([]Bundle, error)           { panic("contract") }
func (s *Store) Bundle(ctx context.Context, name string) (Bundle, error) { panic("contract") }
func (s *Store) DeleteBundle(ctx context.Context, name string) error     { panic("contract") }

// SetWorkingSet remembers which slots of "mem" a restore of this snapshot touched first, in order of first touch.
// At most MaxWorkingSet are kept. It is advice: losing it costs speed only.
func (s *Store) SetWorkingSet(ctx context.Context, id SnapshotID, slots []uint64) error {
	panic("contract")
}

// WorkingSet gives what was remembered; nil when nothing was.
func (s *Store) WorkingSet(ctx context.Context, id SnapshotID) ([]uint64, error) { panic("contract") }

// MaxWorkingSet bounds a remembered working set, in slots.
const MaxWorkingSet = 1 << 16

// LedgerEntry is one link of a VM's append-only, hash-chained record.
type LedgerEntry struct {
	Seq  uint64          `json:"seq"`
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"` // created exec checkpoint rewind fork_point fork resume stop start
	Data json.RawMessage `json:"data"`
	Prev cas.Hash        `json:"prev"` // hash of the entry before; zero for the first
	Hash cas.Hash        `json:"hash"`
}

// AppendLedger adds an entry. CreateVM, Commit and MoveHead add their own in their own transaction.
func (s *Store) AppendLedger(ctx context.Context, vm, kind string, data any) error { panic("contract") }

// Ledger gives all entries in order, having verified the chain; ErrCorrupt when it is broken.
func (s *Store) Ledger(ctx context.Context, vm string) ([]LedgerEntry, error) { panic("contract") }

// Kinds of failure a caller acts on. ErrCorrupt is cas.ErrCorrupt.
var (
	ErrNotFound = errors.New("not found in the store")
	ErrExists   = errors.New("exists already in the store")
	ErrRefMoved = errors.New("the head has moved meanwhile")
	ErrLocked   = errors.New("the store is in use by another process")
	ErrFormat   = errors.New("not a format this version reads")
)
