// Package blockdelta is a writable disk over a read-only base, whose changed blocks can be cut at an instant.
//
// Terms: a block is 4 KiB of a disk. A cut freezes the blocks written since the last one; they keep serving reads while
// a new top takes writes. A delta is what was cut; it ends in exactly one of Commit and Rollback.
package blockdelta

import (
	"context"
	"iter"
)

// BlockBytes is the block size.
const BlockBytes = 4096

// Base is what lies under an overlay; *store.Image is one.
type Base interface {
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
	ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error
	Slots() uint64
}

// Overlay is a writable disk of base.Slots() blocks. Safe for concurrent use.
// Written blocks live in an unlinked file in a folder the caller names, so a guest may write more than fits in memory.
type Overlay struct{}

// New makes an overlay; scratch is a folder on a disk with room for what the guest writes between two commits.
func New(base Base, scratch string) (*Overlay, error) { panic("contract") }

func (o *Overlay) Bytes() uint64 { panic("contract") }

// ReadAt, WriteAt, Zero take any offset and length inside the disk.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, off int64) error  { panic("contract") }
func (o *Overlay) WriteAt(ctx context.Context, p []byte, off int64) error { panic("contract") }

// Zero makes a range read as zeros; whole blocks cost no space. Trim and write-zeroes both end here.
func (o *Overlay) Zero(ctx context.Context, off, n int64) error { panic("contract") }

// Cut freezes what was written since the last cut. Preconditions: no delta is open; no request is in flight.
func (o *Overlay) Cut(ctx context.Context) (*Delta, error) { panic("contract") }

// Close frees the scratch space. Open deltas become unreadable.
func (o *Overlay) Close() error { panic("contract") }

// Delta is the blocks changed at one cut. It satisfies store.Changes.
type Delta struct{}

func (d *Delta) Slots() iter.Seq[uint64] { panic("contract") }
func (d *Delta) Len() int                { panic("contract") }
func (d *Delta) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	panic("contract")
}

// Commit says that newBase holds these blocks: they are read from there from now on and their scratch space is freed.
func (d *Delta) Commit(newBase Base) {}

// Rollback puts the blocks back under what was written since: the next Cut reports them too.
func (d *Delta) Rollback() {}
