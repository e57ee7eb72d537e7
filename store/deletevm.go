package store

import (
	"context"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/store/manifest"
)

// deleteKeys is how many keys one transaction removes; Badger bounds the size of one, a history has no bound.
const deleteKeys = 4096

// DeleteVM removes the VM, its history and its ledger. The chunks go with the next gc.
//
// The VM is gone with the first transaction, which leaves a mark; its keys follow in as many as it takes. A crash in
// between is made good by Open, or by CreateVM of the same name.
func (s *Store) DeleteVM(ctx context.Context, id string) error {
	garbage := int64(0)
	if err := s.view(ctx, func(tx *badger.Txn) error { _, err := getVM(tx, id); return err }); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	defer s.naming.lock(id + "\x00")()
	n := s.beginNote()
	defer n.end()
	n.tryWrite(ctx, manifest.Note{Kind: manifest.NoteVMRemoved, Name: id})
	err := s.update(ctx, func(tx *badger.Txn) error {
		if err := n.name(tx); err != nil {
			return err
		}
		if _, err := getVM(tx, id); err != nil {
			return err
		}
		err := scanHistory(tx, historyKeys(id), func(_ int, r *checkpointRecord) error { garbage += r.NewBytes; return nil })
		if err != nil {
			return err
		}
		if err := tx.Set(deletedKey(id), nil); err != nil {
			return err
		}
		return tx.Delete(vmKey(id))
	})
	if err == nil {
		n.named()
		s.garbage.add(garbage)
		err = s.finishDelete(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// finishDeletes removes what deleted VMs left.
func (s *Store) finishDeletes(ctx context.Context) error {
	var ids []string
	err := s.view(ctx, func(tx *badger.Txn) error {
		return scan(tx, []byte(deletedPrefix), func(key, _ []byte) error {
			ids = append(ids, string(key[len(deletedPrefix):]))
			return nil
		})
	})
	for _, id := range ids {
		if err == nil {
			err = s.finishDelete(ctx, id)
		}
	}
	return err
}

// finishDelete removes the keys of a VM that is marked as deleted; a no-op when it isn't.
func (s *Store) finishDelete(ctx context.Context, id string) error {
	for more := true; more; {
		marked := false
		err := s.view(ctx, func(tx *badger.Txn) error {
			v, err := get(tx, deletedKey(id))
			marked = v != nil
			return err
		})
		if err != nil || !marked {
			return err
		}
		err = s.update(ctx, func(tx *badger.Txn) error {
			keys := keysWith(tx, historyKeys(id), deleteKeys)
			keys = append(keys, keysWith(tx, ledgerKeys(id), deleteKeys-len(keys))...)
			if more = len(keys) == deleteKeys; !more {
				keys = append(keys, ledgerHeadKey(id), retentionKey(id), deletedKey(id))
			}
			for _, key := range keys {
				if err := tx.Delete(key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("remove what flashvm %s left: %w", id, err)
		}
	}
	return nil
}
