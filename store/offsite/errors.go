package offsite

import (
	"errors"
	"fmt"
	"time"

	"flash/store"
)

// Kinds of failure a caller acts on, beside those of cas/bucket.
var (
	// ErrNotOwner: another host has the VM. Every one is an *OwnerError.
	ErrNotOwner = errors.New("another host owns the flashvm there")
	// ErrNoRef: the bucket has no VM of that name.
	ErrNoRef = errors.New("no such flashvm in the bucket")
	// ErrRolledBack: the bucket has more of the VM from this very host than this data directory has: it is a copy, or older
	// than the bucket.
	ErrRolledBack = errors.New("this data directory is older than what it has pushed, or a copy of another")
	// ErrDiverged: the VM here and the one there are not the same, or each has checkpoints that the other hasn't.
	ErrDiverged = errors.New("the flashvm here and the one in the bucket have gone different ways")
	// ErrMoved: the ref has moved again and again while it was worked on.
	ErrMoved = errors.New("the flashvm in the bucket keeps moving")
	// ErrCollecting: a collection that removes packs, or was killed doing it, is in the way.
	ErrCollecting = errors.New("a collection of the bucket is in the way")
	// ErrIncomplete: chunks that a snapshot reaches are neither here nor there.
	ErrIncomplete = errors.New("chunks are neither here nor in the bucket")
	// ErrFormat: not what this version writes.
	ErrFormat = store.ErrFormat
)

// OwnerError says whose a VM is.
type OwnerError struct {
	VM       string
	Location string
	Host     string // its name
	HostID   HostID
	Epoch    uint64
	Since    time.Time
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("flashvm %s in %s belongs to host %s (%.8s) since %s: fork it under another name, or take it over",
		e.VM, e.Location, e.Host, e.HostID, e.Since.Format(timeForm))
}

// Is makes errors.Is(err, ErrNotOwner) hold.
func (e *OwnerError) Is(target error) bool { return target == ErrNotOwner }
