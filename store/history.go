package store

import (
	"context"
	"fmt"
	"math"
	"time"

	badger "github.com/dgraph-io/badger/v4"
)

const maxLabelBytes = 64 << 10

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

// History is ascending by number.
func (s *Store) History(ctx context.Context, vm string) (all []Checkpoint, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		if _, err := getVM(tx, vm); err != nil {
			return err
		}
		return scanHistory(tx, historyKeys(vm), func(number int, r *checkpointRecord) error {
			all = append(all, r.checkpoint(number))
			return nil
		})
	})
	return all, err
}

// scanHistory goes through the checkpoints whose keys have the prefix.
func scanHistory(tx *badger.Txn, prefix []byte, each func(number int, r *checkpointRecord) error) error {
	return scan(tx, prefix, func(key, value []byte) error {
		r := &checkpointRecord{}
		if err := decodeJSON(key, value, r); err != nil {
			return err
		}
		_, number, err := checkpointOf(key)
		if err != nil {
			return err
		}
		return each(number, r)
	})
}

// Checkpoint gives one. ErrNotFound.
func (s *Store) Checkpoint(ctx context.Context, vm string, n int) (c Checkpoint, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		r, err := getCheckpoint(tx, vm, n)
		if err == nil {
			c = r.checkpoint(n)
		}
		return err
	})
	return c, err
}

// MoveHead makes n the head and records kind ("rewind", "resume") in the ledger. Nothing is removed.
func (s *Store) MoveHead(ctx context.Context, vm string, n int, kind string) error {
	return s.changeVM(ctx, vm, func(tx *badger.Txn, r *vmRecord) error {
		if _, err := getCheckpoint(tx, vm, n); err != nil {
			return err
		}
		from := r.Head
		r.Head = n
		return s.enter(tx, vm, kind, map[string]any{"checkpoint": n, "from": from})
	})
}

// SetPinned pins a checkpoint or takes the pin back. ErrNotFound.
func (s *Store) SetPinned(ctx context.Context, vm string, n int, pinned bool) error {
	return s.changeCheckpoint(ctx, vm, n, func(r *checkpointRecord) { r.Pinned = pinned })
}

// SetExitCode notes how the command ended that the checkpoint was taken before. ErrNotFound.
func (s *Store) SetExitCode(ctx context.Context, vm string, n int, code int) error {
	return s.changeCheckpoint(ctx, vm, n, func(r *checkpointRecord) { r.ExitCode = &code })
}

func (s *Store) changeCheckpoint(ctx context.Context, vm string, n int, change func(*checkpointRecord)) error {
	return s.update(ctx, func(tx *badger.Txn) error {
		r, err := getCheckpoint(tx, vm, n)
		if err != nil {
			return err
		}
		change(r)
		return putJSON(tx, checkpointKey(vm, n), r)
	})
}

// getCheckpoint refuses checkpoints of VMs that are gone, even while their keys are still being removed.
func getCheckpoint(tx *badger.Txn, vm string, n int) (*checkpointRecord, error) {
	if _, err := getVM(tx, vm); err != nil {
		return nil, err
	}
	if n < 0 || n > math.MaxUint32 {
		return nil, fmt.Errorf("flashvm %s checkpoint %d: %w", vm, n, ErrNotFound)
	}
	r := &checkpointRecord{}
	if err := getJSON(tx, checkpointKey(vm, n), r); err != nil {
		return nil, fmt.Errorf("flashvm %s checkpoint %d: %w", vm, n, err)
	}
	return r, nil
}
