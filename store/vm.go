package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	badger "github.com/dgraph-io/badger/v4"
)

// VM is the record of one VM. Spec is the host's own JSON, opaque here.
type VM struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Spec    json.RawMessage `json:"spec"`
	State   json.RawMessage `json:"state"` // what the host last knew: running, stopped, pid, …
	Bundle  SnapshotID      `json:"bundle"`
	Head    int             `json:"head"` // -1: no checkpoint yet
	Next    int             `json:"next"` // the number the next checkpoint gets; starts at 1

	Checkpoints int `json:"checkpoints"` // how many of its own it has; a fork point isn't one. Not read by CreateVM
}

// ForkPoint names the checkpoint a VM was forked from.
type ForkPoint struct {
	VM     string `json:"flashvm"`
	Number int    `json:"checkpoint"`
}

// CreateVM adds a VM. With from set it is a fork: its history begins with checkpoint 0, the fork point, which is its
// head, and its bundle is the parent's. ErrExists, ErrNotFound.
func (s *Store) CreateVM(ctx context.Context, v VM, from *ForkPoint) error {
	if err := checkName("flashvm", v.ID); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	// What an unfinished DeleteVM of this name left behind must not become this VM's past.
	if err := s.finishDelete(ctx, v.ID); err != nil {
		return fmt.Errorf("create flashvm %s: %w", v.ID, err)
	}
	err := s.update(ctx, func(tx *badger.Txn) error {
		if have, err := get(tx, vmKey(v.ID)); err != nil || have != nil {
			return orExists(err)
		}
		r := &vmRecord{Created: v.Created.UTC().Round(0), Spec: v.Spec, State: v.State, Bundle: hexHash(v.Bundle), Head: -1, Next: 1, Count: new(int)}
		if v.Created.IsZero() {
			r.Created = s.now().UTC().Round(0)
		}
		if from == nil {
			if v.Bundle != (SnapshotID{}) {
				if ok, err := isBootable(tx, v.Bundle); err != nil {
					return err
				} else if !ok {
					return fmt.Errorf("its bundle's snapshot %s: %w", v.Bundle, ErrNotFound)
				}
			}
			if err := putJSON(tx, vmKey(v.ID), r); err != nil {
				return err
			}
			return s.enter(tx, v.ID, "created", map[string]any{"bundle": r.Bundle})
		}
		return s.fork(tx, v.ID, r, *from)
	})
	if err != nil {
		return fmt.Errorf("create flashvm %s: %w", v.ID, err)
	}
	return nil
}

func orExists(err error) error {
	if err == nil {
		return ErrExists
	}
	return err
}

// fork writes the child r, its fork point, and what both ledgers say about it.
func (s *Store) fork(tx *badger.Txn, child string, r *vmRecord, from ForkPoint) error {
	parent, err := getVM(tx, from.VM)
	if err != nil {
		return err
	}
	at, err := getCheckpoint(tx, from.VM, from.Number)
	if err != nil {
		return err
	}
	r.Bundle, r.Head = parent.Bundle, 0
	point := &Checkpoint{Number: 0, Parent: -1, Snapshot: SnapshotID(at.Snapshot), Label: fmt.Sprintf("fork of %s@%d", from.VM, from.Number),
		Created: r.Created, From: &from}
	if err := putJSON(tx, vmKey(child), r); err != nil {
		return err
	}
	if err := putJSON(tx, checkpointKey(child, 0), recordOf(point)); err != nil {
		return err
	}
	if err := s.enter(tx, child, "fork_point", map[string]any{"flashvm": from.VM, "checkpoint": from.Number, "snapshot": at.Snapshot}); err != nil {
		return err
	}
	return s.enter(tx, from.VM, "fork", map[string]any{"flashvm": child, "checkpoint": from.Number})
}

// VM gives one. ErrNotFound.
func (s *Store) VM(ctx context.Context, id string) (v VM, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		r, err := getVM(tx, id)
		if err == nil {
			v = r.vm(id)
		}
		return err
	})
	return v, err
}

// VMs gives all, by id.
func (s *Store) VMs(ctx context.Context) (all []VM, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		return scan(tx, []byte(vmPrefix), func(key, value []byte) error {
			var r vmRecord
			if err := decodeJSON(key, value, &r); err != nil {
				return err
			}
			all = append(all, r.vm(string(key[len(vmPrefix):])))
			return nil
		})
	})
	return all, err
}

// SetVMSpec replaces the host's JSON about what the VM is. ErrNotFound.
func (s *Store) SetVMSpec(ctx context.Context, id string, spec json.RawMessage) error {
	return s.changeVM(ctx, id, func(_ *badger.Txn, r *vmRecord) error { r.Spec = spec; return nil })
}

// SetVMState replaces the host's JSON about how the VM is. ErrNotFound.
func (s *Store) SetVMState(ctx context.Context, id string, state json.RawMessage) error {
	return s.changeVM(ctx, id, func(_ *badger.Txn, r *vmRecord) error { r.State = state; return nil })
}

func (s *Store) changeVM(ctx context.Context, id string, change func(*badger.Txn, *vmRecord) error) error {
	return s.update(ctx, func(tx *badger.Txn) error {
		r, err := getVM(tx, id)
		if err != nil {
			return err
		}
		if err := change(tx, r); err != nil {
			return fmt.Errorf("flashvm %s: %w", id, err)
		}
		return putJSON(tx, vmKey(id), r)
	})
}

func getVM(tx *badger.Txn, id string) (*vmRecord, error) {
	if err := checkName("flashvm", id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	r := &vmRecord{}
	if err := getJSON(tx, vmKey(id), r); err != nil {
		return nil, fmt.Errorf("flashvm %s: %w", id, err)
	}
	return r, nil
}
