package store

import (
	"context"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/store/manifest"
)

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
// transaction that names it. For a VM the new checkpoint's Number is in the result; for a bundle it is 0.
func (t *Txn) Commit(ctx context.Context, m Meta, mv Move) (*Checkpoint, error) {
	c, err := t.commit(ctx, m, mv)
	if err != nil {
		return nil, fmt.Errorf("commit snapshot: %w", err)
	}
	t.mu.Lock()
	t.newBytes = 0 // they are a checkpoint's now
	t.mu.Unlock()
	t.Abort() // ends it
	return c, nil
}

func (t *Txn) commit(ctx context.Context, m Meta, mv Move) (*Checkpoint, error) {
	r, err := t.record(m)
	if err != nil {
		return nil, err
	}
	if err := mv.check(r.Kind); err != nil {
		return nil, err
	}
	// Ask first: a head that has moved need not cost a sync. Asked again where it counts.
	if mv.VM != "" {
		err := t.s.view(ctx, func(tx *badger.Txn) error { _, err := mv.vm(tx); return err })
		if err != nil {
			return nil, err
		}
	}
	id, err := t.putRecord(ctx, r)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Parent: -1, Snapshot: id, Label: mv.Label, Created: r.Created, Pinned: mv.Pinned, NewBytes: t.newBytes}
	defer t.s.naming.lock(mv.VM + "\x00" + mv.Bundle)()
	n := t.s.beginNote()
	defer n.end()
	if err := t.writeNote(ctx, n, mv, *c); err != nil {
		return nil, err
	}
	c.NewBytes += n.newBytes
	// Sync before Badger names the record: what is visible is durable (I3).
	if err := t.s.chunks.Sync(ctx); err != nil {
		return nil, fmt.Errorf("sync chunks: %w", err)
	}
	err = t.s.update(ctx, func(tx *badger.Txn) error {
		if err := n.name(tx); err != nil {
			return err
		}
		if mv.Bundle != "" {
			return putJSON(tx, bundleKey(mv.Bundle), bundleRecord{Snapshot: hexHash(id), Created: r.Created})
		}
		return t.s.appendCheckpoint(tx, mv, c)
	})
	if err != nil {
		return nil, err
	}
	n.named()
	return c, nil
}

// writeNote says in the packs what the transaction is about to say. Precondition: the name is locked, so that the number
// the checkpoint gets is the one it says.
func (t *Txn) writeNote(ctx context.Context, n *note, mv Move, c Checkpoint) error {
	if mv.Bundle != "" {
		return n.write(ctx, manifest.Note{Kind: manifest.NoteBundle, Bundle: manifest.NamedBundle{Name: mv.Bundle, Snapshot: c.Snapshot, Created: c.Created}})
	}
	var v *vmRecord
	err := t.s.view(ctx, func(tx *badger.Txn) (err error) { v, err = mv.vm(tx); return err })
	if err != nil {
		return err
	}
	mv.place(v, &c)
	h := headerOf(mv.VM, v)
	h.Checkpoints = []manifest.NamedSnapshot{named(&c)}
	return n.write(ctx, manifest.Note{Kind: manifest.NoteVM, History: &h})
}

// place gives c its number and place in the history.
func (mv *Move) place(v *vmRecord, c *Checkpoint) {
	c.Number, c.Parent = v.Next, v.Head
	v.Next++
	v.add(1)
	if !mv.KeepHead {
		v.Head = c.Number
	}
}

func (mv *Move) check(k manifest.Kind) error {
	switch {
	case (mv.VM == "") == (mv.Bundle == ""):
		return fmt.Errorf("it moves VM %q and bundle %q: exactly one must be set", mv.VM, mv.Bundle)
	case mv.Bundle != "" && k != manifest.Bundle, mv.VM != "" && k != manifest.Checkpoint:
		return fmt.Errorf("a %s can't be named by VM %q or bundle %q: %w", k, mv.VM, mv.Bundle, ErrFormat)
	case len(mv.Label) > maxLabelBytes:
		return fmt.Errorf("a label of %d bytes, at most %d", len(mv.Label), maxLabelBytes)
	case mv.Bundle != "":
		return checkName("bundle", mv.Bundle)
	}
	return nil
}

// vm reads the VM that is moved and refuses when its head isn't where the caller thinks.
func (mv *Move) vm(tx *badger.Txn) (*vmRecord, error) {
	v, err := getVM(tx, mv.VM)
	if err != nil {
		return nil, err
	}
	if v.Head != mv.ExpectHead {
		return nil, fmt.Errorf("flashvm %s: head is checkpoint %d, expected %d: %w", mv.VM, v.Head, mv.ExpectHead, ErrRefMoved)
	}
	return v, nil
}

// appendCheckpoint gives c its place in the history, and enters it in the ledger.
func (s *Store) appendCheckpoint(tx *badger.Txn, mv Move, c *Checkpoint) error {
	v, err := mv.vm(tx)
	if err != nil {
		return err
	}
	mv.place(v, c)
	if err := putJSON(tx, checkpointKey(mv.VM, c.Number), recordOf(c)); err != nil {
		return err
	}
	if err := putJSON(tx, vmKey(mv.VM), v); err != nil {
		return err
	}
	return s.enter(tx, mv.VM, "checkpoint", map[string]any{
		"checkpoint": c.Number, "parent": c.Parent, "snapshot": hexHash(c.Snapshot), "label": c.Label,
		"pinned": c.Pinned, "head": v.Head, "new_bytes": c.NewBytes,
	})
}
