package store

import (
	"context"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// History is a VM's whole record as it travels; see store/manifest for its format.
type History = manifest.History

// ExportVM gives all that is known of a VM beside its chunks, at one instant. ErrNotFound, ErrCorrupt.
//
// What its State says isn't in it: that is about a machine of this host. Its snapshots may go with the next gc unless
// something holds them: see Hold.
func (s *Store) ExportVM(ctx context.Context, vm string) (h History, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error { h, err = readHistory(tx, vm); return err })
	if err != nil {
		return History{}, fmt.Errorf("export: %w", err)
	}
	return h, nil
}

func readHistory(tx *badger.Txn, vm string) (History, error) {
	r, err := getVM(tx, vm)
	if err != nil {
		return History{}, err
	}
	h := headerOf(vm, r)
	if h.Retention, err = get(tx, retentionKey(vm)); err != nil {
		return h, err
	}
	err = scanHistory(tx, historyKeys(vm), func(n int, r *checkpointRecord) error {
		c := r.checkpoint(n)
		h.Checkpoints = append(h.Checkpoints, named(&c))
		return nil
	})
	if err != nil {
		return h, err
	}
	ledger, err := readLedger(tx, vm)
	for i := range ledger {
		h.Ledger = append(h.Ledger, ledger[i].link())
	}
	return h, err
}

// headerOf is the history without what it lists.
func headerOf(vm string, r *vmRecord) History {
	return History{VM: vm, Created: r.Created, Bundle: cas.Hash(r.Bundle), Head: r.Head, Next: r.Next, Spec: r.Spec}
}

func named(c *Checkpoint) manifest.NamedSnapshot {
	n := manifest.NamedSnapshot{Number: c.Number, Parent: c.Parent, Snapshot: c.Snapshot, Created: c.Created, Label: c.Label,
		ExitCode: c.ExitCode, Pinned: c.Pinned, NewBytes: c.NewBytes}
	if c.From != nil {
		n.FromVM, n.FromNumber = c.From.VM, c.From.Number
	}
	return n
}

// unnamed is named's inverse.
func unnamed(n *manifest.NamedSnapshot) *checkpointRecord {
	r := &checkpointRecord{Parent: n.Parent, Snapshot: hexHash(n.Snapshot), Label: n.Label, Created: n.Created,
		ExitCode: n.ExitCode, Pinned: n.Pinned, NewBytes: n.NewBytes}
	if n.FromVM != "" {
		r.From = &ForkPoint{VM: n.FromVM, Number: n.FromNumber}
	}
	return r
}
