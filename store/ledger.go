package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// LedgerEntry is one link of a VM's append-only, hash-chained record.
type LedgerEntry struct {
	Seq  uint64          `json:"seq"` // 1, 2, 3 …
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"` // created exec checkpoint rewind fork_point fork resume stop start
	Data json.RawMessage `json:"data"`
	Prev cas.Hash        `json:"prev"` // hash of the entry before; zero for the first
	Hash cas.Hash        `json:"hash"`
}

// sum is what Hash must be; see manifest.LedgerEntry.Sum.
func (e *LedgerEntry) sum() cas.Hash { link := e.link(); return link.Sum() }

func (e *LedgerEntry) link() manifest.LedgerEntry {
	return manifest.LedgerEntry{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Data: e.Data, Prev: e.Prev, Hash: e.Hash}
}

const maxKindBytes = manifest.MaxLedgerKind

// AppendLedger adds an entry. CreateVM, Commit and MoveHead add their own in their own transaction.
func (s *Store) AppendLedger(ctx context.Context, vm, kind string, data any) error {
	return s.update(ctx, func(tx *badger.Txn) error {
		if _, err := getVM(tx, vm); err != nil {
			return err
		}
		return s.enter(tx, vm, kind, data)
	})
}

// enter adds an entry within a transaction.
func (s *Store) enter(tx *badger.Txn, vm, kind string, data any) error {
	if kind == "" || len(kind) > maxKindBytes {
		return fmt.Errorf("ledger kind %.80q: it has 1 to %d bytes", kind, maxKindBytes)
	}
	head, err := getLedgerHead(tx, vm)
	if err != nil {
		return err
	}
	e := LedgerEntry{Seq: head.Next, Time: s.now().UTC().Round(0), Kind: kind, Prev: cas.Hash(head.Hash)}
	if e.Data, err = json.Marshal(data); err != nil {
		return fmt.Errorf("ledger data: %w", err)
	}
	e.Hash = e.sum()
	r := ledgerRecord{e.Time, e.Kind, e.Data, hexHash(e.Prev), hexHash(e.Hash)}
	if err := putJSON(tx, ledgerKey(vm, e.Seq), r); err != nil {
		return err
	}
	head.Next, head.Hash = e.Seq+1, hexHash(e.Hash)
	return putJSON(tx, ledgerHeadKey(vm), head)
}

func getLedgerHead(tx *badger.Txn, vm string) (ledgerHead, error) {
	head := ledgerHead{Next: 1}
	v, err := get(tx, ledgerHeadKey(vm))
	if err != nil || v == nil {
		return head, err
	}
	err = decodeJSON(ledgerHeadKey(vm), v, &head)
	return head, err
}

// Ledger gives all entries in order, having verified the chain; ErrCorrupt when it is broken. That of an imported VM may
// begin later than with number 1.
func (s *Store) Ledger(ctx context.Context, vm string) (all []LedgerEntry, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		if _, err := getVM(tx, vm); err != nil {
			return err
		}
		all, err = readLedger(tx, vm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func readLedger(tx *badger.Txn, vm string) (all []LedgerEntry, err error) {
	head, err := getLedgerHead(tx, vm)
	if err != nil {
		return nil, err
	}
	last, next := cas.Hash(head.Before), max(head.First, 1)
	err = scan(tx, ledgerKeys(vm), func(key, value []byte) error {
		var r ledgerRecord
		if err := decodeJSON(key, value, &r); err != nil {
			return err
		}
		seq, err := seqOf(key, vm)
		if err != nil {
			return err
		}
		e := LedgerEntry{seq, r.Time, r.Kind, r.Data, cas.Hash(r.Prev), cas.Hash(r.Hash)}
		switch {
		case e.Seq != next:
			return fmt.Errorf("ledger of flashvm %s: entry %d is followed by %d: %w", vm, next-1, e.Seq, errBroken)
		case e.Prev != last, e.Hash != e.sum():
			return fmt.Errorf("ledger of flashvm %s: entry %d doesn't hash to its name or isn't chained: %w", vm, e.Seq, errBroken)
		}
		last, next = e.Hash, e.Seq+1
		all = append(all, e)
		return nil
	})
	if err == nil && (head.Next != next || cas.Hash(head.Hash) != last) {
		err = fmt.Errorf("ledger of flashvm %s: its last entry is %d, it should be %d: %w", vm, next-1, head.Next-1, errBroken)
	}
	return all, err
}

// errBroken is an ErrCorrupt in words that suit a ledger.
var errBroken = brokenLedger{}

type brokenLedger struct{}

func (brokenLedger) Error() string        { return "it was damaged or tampered with" }
func (brokenLedger) Is(target error) bool { return target == ErrCorrupt }
