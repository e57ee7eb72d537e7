package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	badger "github.com/dgraph-io/badger/v4"

	"flash/store/manifest"
)

// ImportOptions says how a history becomes a VM. The zero value: under its own name, which must be free.
type ImportOptions struct {
	As string // the VM's name here; "": the history's

	// Continue lets a VM of that name go on with the history, which must hold every checkpoint the VM has, with the same
	// number and snapshot; ErrRefMoved when it doesn't. Its head, spec and rules become the history's, its state stays.
	// The ledger is continued too, or kept as it is where the history's doesn't follow from it.
	Continue bool
}

// importBatch is how many records one transaction writes; Badger bounds the size of one, a history has no bound.
const importBatch = 512

// ImportVM makes a VM of a history, whose snapshots must be here: at least their records; whoever brought them answers
// for what they reach. They are held while it runs, but not before: hold them since they were put. ErrExists,
// ErrNotFound for a snapshot, ErrFormat, ErrRefMoved.
//
// A new VM is there from the last transaction on, and a crash before leaves nothing. One that is continued is whole after
// each of them.
func (s *Store) ImportVM(ctx context.Context, h History, o ImportOptions) error {
	if o.As == "" {
		o.As = h.VM
	}
	im := importer{s: s, vm: o.As, h: h}
	defer s.naming.lock(o.As + "\x00")()
	if err := im.run(ctx, o.Continue); err != nil {
		return fmt.Errorf("import flashvm %s: %w", o.As, err)
	}
	s.tryCatalogue(ctx) // notes tell of one checkpoint each
	return nil
}

type importer struct {
	s  *Store
	vm string
	h  History
}

func (im *importer) run(ctx context.Context, goOn bool) error {
	if err := im.check(); err != nil {
		return err
	}
	roots := im.h.Roots()
	for _, id := range roots {
		defer im.s.pin(id)()
	}
	for some := range slices.Chunk(roots, importBatch) {
		have, err := im.s.chunks.Has(ctx, some)
		if err != nil {
			return err
		}
		if i := slices.Index(have, false); i >= 0 {
			return fmt.Errorf("snapshot %s: %w", some[i], ErrNotFound)
		}
	}
	if goOn {
		if err := im.goOn(ctx); !errors.Is(err, errNoVM) {
			return err
		}
	}
	return im.create(ctx)
}

// check refuses what isn't a history, or would not be the same one when it is read again.
func (im *importer) check() error {
	if err := checkName("flashvm", im.vm); err != nil {
		return err
	}
	if _, err := im.h.Append(nil); err != nil {
		return err
	}
	for _, p := range [][]byte{im.h.Spec, im.h.Retention} {
		if len(p) > 0 && !json.Valid(p) {
			return fmt.Errorf("its spec or its rules are no JSON: %w", ErrFormat)
		}
	}
	for i := range im.h.Ledger {
		e := &im.h.Ledger[i]
		if again, err := json.Marshal(json.RawMessage(e.Data)); err != nil || !bytes.Equal(again, e.Data) {
			return fmt.Errorf("the data of ledger entry %d is no compact JSON: %w", e.Seq, ErrFormat)
		}
	}
	return nil
}

// create writes a new VM's keys under the mark of a deleted one, so that a crash removes them again, and takes the mark
// away with the transaction that makes it a VM. The mark's value says whose it is.
func (im *importer) create(ctx context.Context) error {
	if err := im.s.finishDelete(ctx, im.vm); err != nil {
		return err
	}
	mark := strconv.FormatUint(rand.Uint64(), 16)
	err := im.s.update(ctx, func(tx *badger.Txn) error {
		if have, err := get(tx, vmKey(im.vm)); err != nil || have != nil {
			return orExists(err)
		}
		return tx.Set(deletedKey(im.vm), []byte(mark))
	})
	if err != nil {
		return err
	}
	marked := func(tx *badger.Txn) error {
		have, err := get(tx, deletedKey(im.vm))
		if err == nil && !bytes.Equal(have, []byte(mark)) {
			err = fmt.Errorf("another of that name was made meanwhile: %w", ErrExists)
		}
		return err
	}
	err = im.write(ctx, im.h.Checkpoints, im.h.Ledger, marked)
	if err == nil {
		err = im.s.update(ctx, func(tx *badger.Txn) error {
			if err := marked(tx); err != nil {
				return err
			}
			if err := tx.Delete(deletedKey(im.vm)); err != nil {
				return err
			}
			return im.finish(tx, &vmRecord{})
		})
	}
	if err != nil && !errors.Is(err, ErrExists) {
		err = errors.Join(err, im.s.finishDelete(context.WithoutCancel(ctx), im.vm))
	}
	return err
}

// write writes checkpoints and ledger entries, in as many transactions as it takes, each of which asks first.
func (im *importer) write(ctx context.Context, checkpoints []manifest.NamedSnapshot, ledger []manifest.LedgerEntry, first func(*badger.Txn) error) error {
	size := importBatch
	for len(checkpoints)+len(ledger) > 0 {
		some := checkpoints[:min(len(checkpoints), size)]
		entries := ledger[:min(len(ledger), size-len(some))]
		err := im.s.update(ctx, func(tx *badger.Txn) error {
			if err := first(tx); err != nil {
				return err
			}
			if err := im.count(tx, some); err != nil {
				return err
			}
			for i := range some {
				if err := putJSON(tx, checkpointKey(im.vm, some[i].Number), unnamed(&some[i])); err != nil {
					return err
				}
			}
			return im.enter(tx, entries)
		})
		if errors.Is(err, badger.ErrTxnTooBig) && size > 1 { // long labels
			size /= 2
			continue
		}
		if err != nil {
			return err
		}
		checkpoints, ledger = checkpoints[len(some):], ledger[len(entries):]
	}
	return nil
}

// count counts those of the checkpoints that a VM which is continued doesn't have yet.
func (im *importer) count(tx *badger.Txn, some []manifest.NamedSnapshot) error {
	v, err := getVM(tx, im.vm)
	if errors.Is(err, ErrNotFound) { // a new one is counted in the end
		return nil
	}
	if err != nil {
		return err
	}
	for i := range some {
		have, err := get(tx, checkpointKey(im.vm, some[i].Number))
		if err != nil {
			return err
		}
		if have == nil && some[i].FromVM == "" {
			v.add(1)
		}
	}
	return putJSON(tx, vmKey(im.vm), v)
}

// enter adds entries as they are to the ledger, which they must follow from; an empty ledger may begin anywhere.
func (im *importer) enter(tx *badger.Txn, entries []manifest.LedgerEntry) error {
	if len(entries) == 0 {
		return nil
	}
	head, err := getLedgerHead(tx, im.vm)
	if err != nil {
		return err
	}
	if e := &entries[0]; head.isEmpty() && e.Seq > 1 {
		head = ledgerHead{Next: e.Seq, Hash: hexHash(e.Prev), First: e.Seq, Before: hexHash(e.Prev)}
	}
	for i := range entries {
		e := &entries[i]
		if e.Seq != head.Next || hexHash(e.Prev) != head.Hash {
			return fmt.Errorf("something was entered in its ledger meanwhile: %w", ErrRefMoved)
		}
		if err := putJSON(tx, ledgerKey(im.vm, e.Seq), ledgerRecord{e.Time, e.Kind, e.Data, hexHash(e.Prev), hexHash(e.Hash)}); err != nil {
			return err
		}
		head.Next, head.Hash = e.Seq+1, hexHash(e.Hash)
	}
	return putJSON(tx, ledgerHeadKey(im.vm), head)
}

func (l *ledgerHead) isEmpty() bool { return l.Next <= max(l.First, 1) }

// finish writes the record that makes it this VM; r gives the state that stays.
func (im *importer) finish(tx *badger.Txn, r *vmRecord) error {
	r = &vmRecord{Created: im.h.Created, Spec: im.h.Spec, State: r.State, Bundle: hexHash(im.h.Bundle), Head: im.h.Head, Next: im.h.Next, Count: new(int)}
	for i := range im.h.Checkpoints {
		if im.h.Checkpoints[i].FromVM == "" {
			r.add(1)
		}
	}
	if err := putJSON(tx, vmKey(im.vm), r); err != nil {
		return err
	}
	if len(im.h.Retention) == 0 {
		return tx.Delete(retentionKey(im.vm))
	}
	return tx.Set(retentionKey(im.vm), im.h.Retention)
}
