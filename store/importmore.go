package store

import (
	"context"
	"errors"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// errNoVM: there is none to go on with.
var errNoVM = errors.New("no VM of that name")

// goOn adds what the VM lacks, parents before their children, then what its ledger lacks, and moves the head last.
func (im *importer) goOn(ctx context.Context) error {
	var head int
	var lacks []manifest.NamedSnapshot
	var entries []manifest.LedgerEntry
	err := im.s.update(ctx, func(tx *badger.Txn) error {
		v, missing, err := im.compare(tx)
		if err != nil {
			return err
		}
		ledger, err := getLedgerHead(tx, im.vm)
		if err != nil {
			return err
		}
		head, lacks, entries = v.Head, missing, im.follows(ledger)
		v.Next = max(v.Next, im.h.Next) // a checkpoint made meanwhile gets none of the numbers that are about to be written
		return putJSON(tx, vmKey(im.vm), v)
	})
	if err != nil {
		return err
	}
	err = im.write(ctx, lacks, entries, func(tx *badger.Txn) error {
		v, err := getVM(tx, im.vm)
		if err == nil && v.Head != head {
			err = ErrRefMoved
		}
		return err
	})
	if err != nil {
		return err
	}
	return im.s.update(ctx, func(tx *badger.Txn) error {
		v, _, err := im.compare(tx)
		if err == nil && v.Head != head {
			err = ErrRefMoved
		}
		if err != nil {
			return err
		}
		return im.finish(tx, v)
	})
}

// compare refuses a history that lacks a checkpoint the VM has, and gives those that the VM lacks or knows less of.
func (im *importer) compare(tx *badger.Txn) (v *vmRecord, lacks []manifest.NamedSnapshot, err error) {
	v, err = getVM(tx, im.vm)
	if errors.Is(err, ErrNotFound) {
		return nil, nil, errNoVM
	}
	if err != nil {
		return nil, nil, err
	}
	have := map[int]*checkpointRecord{}
	err = scanHistory(tx, historyKeys(im.vm), func(n int, r *checkpointRecord) error { have[n] = r; return nil })
	if err != nil {
		return nil, nil, err
	}
	found := 0
	for i := range im.h.Checkpoints {
		c := &im.h.Checkpoints[i]
		r := have[c.Number]
		if r == nil {
			lacks = append(lacks, *c)
			continue
		}
		found++
		if cas.Hash(r.Snapshot) != c.Snapshot {
			return nil, nil, fmt.Errorf("its checkpoint %d is another: %w", c.Number, ErrRefMoved)
		}
		if r.Pinned != c.Pinned || r.Parent != c.Parent || r.ExitCode == nil && c.ExitCode != nil {
			lacks = append(lacks, *c)
		}
	}
	if found < len(have) {
		return nil, nil, fmt.Errorf("%d of its checkpoints aren't in the history: %w", len(have)-found, ErrRefMoved)
	}
	return v, lacks, nil
}

// follows gives the entries of the history's ledger that come after what the VM's has; none if it isn't that one's past.
func (im *importer) follows(ledger ledgerHead) []manifest.LedgerEntry {
	for i := range im.h.Ledger {
		if e := &im.h.Ledger[i]; e.Seq == ledger.Next && hexHash(e.Prev) == ledger.Hash {
			return im.h.Ledger[i:]
		}
	}
	return nil
}
