// Package blockdelta is a writable disk over a read-only base, whose changed blocks can be cut at an instant.
//
// Terms: a block is 4 KiB of a disk. A cut freezes the blocks written since the last one; they keep serving reads while
// a new top takes writes. A delta is what was cut; it ends in exactly one of Commit and Rollback. A place is where a
// written block's bytes lie: a slot of the scratch file, or nowhere when they are zero.
//
// What a read finds, from above:
//
//	top      written since the last cut            the only layer that changes
//	frozen   cut, its delta still open             never changes
//	base     everything else                       replaced by Commit, which drops frozen in the same instant
//
// A slot of the scratch file is overwritten in place while its block is in the top, and is never written once frozen.
// A block that leaves the layers gives its slot back only after every request that may have looked it up has ended
// (era.go), so no request reads another block's bytes.
//
// Requests that overlap in time and place take effect in some order, byte by byte, as on a real disk. Requests that
// touch different bytes of one block never undo each other, although a block is what is stored.
//
// Lock order: Overlay.mu, then scratch.mu. Neither is held across a read or a write of the base or the scratch file.
package blockdelta

import (
	"context"
	"errors"
)

// BlockBytes is the block size.
const BlockBytes = 4096

// Base is what lies under an overlay; *store.Image is one.
type Base interface {
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
	ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error
	Slots() uint64
}

// Kinds of failure a caller acts on.
var (
	// ErrRange: the request reaches beyond the disk. Nothing was done.
	ErrRange = errors.New("outside the disk")
	// ErrOpen: the last cut's delta has been neither committed nor rolled back.
	ErrOpen = errors.New("a delta is open")
	// ErrEnded: the delta was committed or rolled back; its blocks can't be read through it any more.
	ErrEnded = errors.New("the delta has ended")
	// ErrClosed: the overlay was closed.
	ErrClosed = errors.New("the overlay is closed")
)
