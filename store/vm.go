package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/store/manifest"
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
	if v.Created.IsZero() {
		v.Created = s.now()
	}
	v.Created = v.Created.UTC().Round(0)
	defer s.naming.lock(v.ID + "\x00")()
	n := s.beginNote()
	defer n.end()
	err := s.noteVM(ctx, n, v, from)
	if err == nil {
		err = s.update(ctx, func(tx *badger.Txn) error {
			if err := n.name(tx); err != nil {
				return err
			}
			return s.createVM(tx, v, from)
		})
	}
	if err != nil {
		return fmt.Errorf("create flashvm %s: %w", v.ID, err)
	}
	n.named()
	return nil
}

// noteVM says in the packs what createVM is about to say, unless that will refuse.
func (s *Store) noteVM(ctx context.Context, n *note, v VM, from *ForkPoint) error {
	var r *vmRecord
	var point *Checkpoint
	err := s.view(ctx, func(tx *badger.Txn) (err error) { r, point, err = madeFrom(tx, v, from); return err })
	if err != nil {
		return err
	}
	h := headerOf(v.ID, r)
	if point != nil {
		h.Checkpoints = []manifest.NamedSnapshot{named(point)}
	}
	return n.writeDurably(ctx, manifest.Note{Kind: manifest.NoteVM, History: &h})
}

// madeFrom makes the record of a VM, and the fork point of a fork.
func madeFrom(tx *badger.Txn, v VM, from *ForkPoint) (r *vmRecord, point *Checkpoint, err error) {
	if have, err := get(tx, vmKey(v.ID)); err != nil || have != nil {
		return nil, nil, orExists(err)
	}
	r = &vmRecord{Created: v.Created, Spec: v.Spec, State: v.State, Bundle: hexHash(v.Bundle), Head: -1, Next: 1, Count: new(int)}
	if from == nil {
		if v.Bundle != (SnapshotID{}) {
			if ok, err := isBootable(tx, v.Bundle); err != nil {
				return nil, nil, err
			} else if !ok {
				return nil, nil, fmt.Errorf("its bundle's snapshot %s: %w", v.Bundle, ErrNotFound)
			}
		}
		return r, nil, nil
	}
	parent, err := getVM(tx, from.VM)
	if err != nil {
		return nil, nil, err
	}
	at, err := getCheckpoint(tx, from.VM, from.Number)
	if err != nil {
		return nil, nil, err
	}
	r.Bundle, r.Head = parent.Bundle, 0
	return r, &Checkpoint{Number: 0, Parent: -1, Snapshot: SnapshotID(at.Snapshot), Label: fmt.Sprintf("fork of %s@%d", from.VM, from.Number),
		Created: r.Created, From: from}, nil
}

func orExists(err error) error {
	if err == nil {
		return ErrExists
	}
	return err
}

// createVM writes the record and, for a fork, its fork point and what both ledgers say about it.
func (s *Store) createVM(tx *badger.Txn, v VM, from *ForkPoint) error {
	r, point, err := madeFrom(tx, v, from)
	if err != nil {
		return err
	}
	if err := putJSON(tx, vmKey(v.ID), r); err != nil {
		return err
	}
	if point == nil {
		return s.enter(tx, v.ID, "created", map[string]any{"bundle": r.Bundle})
	}
	if err := putJSON(tx, checkpointKey(v.ID, 0), recordOf(point)); err != nil {
		return err
	}
	err = s.enter(tx, v.ID, "fork_point", map[string]any{"flashvm": from.VM, "checkpoint": from.Number, "snapshot": hexHash(point.Snapshot)})
	if err != nil {
		return err
	}
	return s.enter(tx, from.VM, "fork", map[string]any{"flashvm": v.ID, "checkpoint": from.Number})
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
