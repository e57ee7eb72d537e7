package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
)

// errFound ends a scan.
var errFound = errors.New("found")

// isBootable tells whether something that stays says that VMs may boot from the snapshot: a bundle, or another VM. It is
// asked in the transaction that names the snapshot once more, so that gc can't have passed between.
func isBootable(tx *badger.Txn, id SnapshotID) (bool, error) {
	err := scan(tx, []byte(bundlePrefix), func(key, value []byte) error {
		var r bundleRecord
		if err := decodeJSON(key, value, &r); err != nil {
			return err
		}
		if SnapshotID(r.Snapshot) == id {
			return errFound
		}
		return nil
	})
	if err == nil {
		err = scan(tx, []byte(vmPrefix), func(key, value []byte) error {
			var r vmRecord
			if err := decodeJSON(key, value, &r); err != nil {
				return err
			}
			if SnapshotID(r.Bundle) == id {
				return errFound
			}
			return nil
		})
	}
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// Name is what keeps a snapshot: a checkpoint, a bundle, or a VM that boots from it. Exactly one of Bundle and VM is set;
// Number is -1 for what a VM boots from.
type Name struct {
	Bundle string `json:"bundle,omitempty"`
	VM     string `json:"flashvm,omitempty"`
	Number int    `json:"checkpoint"`
}

func (n Name) String() string {
	switch {
	case n.Bundle != "":
		return "bundle " + n.Bundle
	case n.Number < 0:
		return n.VM + "'s bundle"
	}
	return fmt.Sprintf("%s@%d", n.VM, n.Number)
}

// names gives every snapshot that has a name, with all its names in order.
func (s *Store) names(ctx context.Context) (map[SnapshotID][]Name, error) {
	all := map[SnapshotID][]Name{}
	err := s.view(ctx, func(tx *badger.Txn) error {
		err := scan(tx, []byte(bundlePrefix), func(key, value []byte) error {
			var r bundleRecord
			err := decodeJSON(key, value, &r)
			all[SnapshotID(r.Snapshot)] = append(all[SnapshotID(r.Snapshot)], Name{Bundle: string(key[len(bundlePrefix):]), Number: -1})
			return err
		})
		if err != nil {
			return err
		}
		return scan(tx, []byte(vmPrefix), func(key, value []byte) error {
			var r vmRecord
			if err := decodeJSON(key, value, &r); err != nil {
				return err
			}
			vm := string(key[len(vmPrefix):])
			if r.Bundle != (hexHash{}) {
				all[SnapshotID(r.Bundle)] = append(all[SnapshotID(r.Bundle)], Name{VM: vm, Number: -1})
			}
			return scanHistory(tx, historyKeys(vm), func(n int, c *checkpointRecord) error {
				all[SnapshotID(c.Snapshot)] = append(all[SnapshotID(c.Snapshot)], Name{VM: vm, Number: n})
				return nil
			})
		})
	})
	return all, err
}

// inOrder gives the snapshots so that two runs over one store go the same way.
func inOrder(names map[SnapshotID][]Name) []SnapshotID {
	return slices.SortedFunc(maps.Keys(names), func(a, b SnapshotID) int { return strings.Compare(string(a[:]), string(b[:])) })
}
