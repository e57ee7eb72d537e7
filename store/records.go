package store

import (
	"encoding/json"
	"time"
)

// What Badger holds, as JSON. These types are the format: they change only together with formatVersion.

type vmRecord struct {
	Created time.Time       `json:"created"`
	Spec    json.RawMessage `json:"spec,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Bundle  hexHash         `json:"bundle"`
	Head    int             `json:"head"`
	Next    int             `json:"next"`
	Count   *int            `json:"count"` // of its own checkpoints, a fork point not among them; nil: written before there was one
}

func (r *vmRecord) vm(id string) VM {
	return VM{ID: id, Created: r.Created, Spec: r.Spec, State: r.State, Bundle: SnapshotID(r.Bundle), Head: r.Head, Next: r.Next, Checkpoints: r.count()}
}

func (r *vmRecord) count() int {
	if r.Count == nil {
		return 0 // Open has counted it, see countCheckpoints
	}
	return *r.Count
}

// add counts checkpoints that came, or went.
func (r *vmRecord) add(checkpoints int) {
	n := r.count() + checkpoints
	r.Count = &n
}

type checkpointRecord struct {
	Parent   int        `json:"parent"`
	Snapshot hexHash    `json:"snapshot"`
	Label    string     `json:"label"`
	Created  time.Time  `json:"created"`
	ExitCode *int       `json:"exit_code,omitempty"`
	Pinned   bool       `json:"pinned,omitempty"`
	NewBytes int64      `json:"new_bytes"`
	From     *ForkPoint `json:"from,omitempty"`
}

func recordOf(c *Checkpoint) *checkpointRecord {
	return &checkpointRecord{Parent: c.Parent, Snapshot: hexHash(c.Snapshot), Label: c.Label, Created: c.Created,
		ExitCode: c.ExitCode, Pinned: c.Pinned, NewBytes: c.NewBytes, From: c.From}
}

func (r *checkpointRecord) checkpoint(number int) Checkpoint {
	return Checkpoint{Number: number, Parent: r.Parent, Snapshot: SnapshotID(r.Snapshot), Label: r.Label, Created: r.Created,
		ExitCode: r.ExitCode, Pinned: r.Pinned, NewBytes: r.NewBytes, From: r.From}
}

type bundleRecord struct {
	Snapshot hexHash   `json:"snapshot"`
	Created  time.Time `json:"created"`
}

type ledgerRecord struct {
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
	Prev hexHash         `json:"prev"`
	Hash hexHash         `json:"hash"`
}

type ledgerHead struct {
	Next uint64  `json:"next"` // the seq of the next entry; the first has 1
	Hash hexHash `json:"hash"` // of the last entry

	// Of an imported ledger whose beginning was cut off: the first entry there is, and the hash of the one before it.
	First  uint64  `json:"first,omitempty"`
	Before hexHash `json:"before,omitzero"`
}
