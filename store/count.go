package store

import (
	"context"

	badger "github.com/dgraph-io/badger/v4"
)

// A VM's record says how many checkpoints it has, so that listing VMs reads no history. The count changes in the
// transactions that add and remove checkpoints.

// countCheckpoints counts where a record was written before there was a count.
func (s *Store) countCheckpoints(ctx context.Context) error {
	var uncounted []string
	err := s.view(ctx, func(tx *badger.Txn) error {
		return scan(tx, []byte(vmPrefix), func(key, value []byte) error {
			var r vmRecord
			err := decodeJSON(key, value, &r)
			if err == nil && r.Count == nil {
				uncounted = append(uncounted, string(key[len(vmPrefix):]))
			}
			return err
		})
	})
	for _, vm := range uncounted {
		if err != nil {
			return err
		}
		err = s.changeVM(ctx, vm, func(tx *badger.Txn, r *vmRecord) error {
			count, err := countOwn(tx, vm)
			r.Count = &count
			return err
		})
	}
	return err
}

// countOwn counts the checkpoints there are, without the fork point.
func countOwn(tx *badger.Txn, vm string) (count int, err error) {
	err = scanHistory(tx, historyKeys(vm), func(_ int, r *checkpointRecord) error {
		if r.From == nil {
			count++
		}
		return nil
	})
	return count, err
}
