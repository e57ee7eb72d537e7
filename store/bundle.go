package store

import (
	"context"
	"fmt"
	"time"

	badger "github.com/dgraph-io/badger/v4"

	"flash/store/manifest"
)

// Bundle is a named snapshot of Kind "bundle".
type Bundle struct {
	Name     string     `json:"name"`
	Snapshot SnapshotID `json:"snapshot"`
	Created  time.Time  `json:"created"`
}

// Bundles gives all, by name.
func (s *Store) Bundles(ctx context.Context) (all []Bundle, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		return scan(tx, []byte(bundlePrefix), func(key, value []byte) error {
			var r bundleRecord
			if err := decodeJSON(key, value, &r); err != nil {
				return err
			}
			all = append(all, Bundle{string(key[len(bundlePrefix):]), SnapshotID(r.Snapshot), r.Created})
			return nil
		})
	})
	return all, err
}

// Bundle gives one. ErrNotFound.
func (s *Store) Bundle(ctx context.Context, name string) (b Bundle, err error) {
	err = s.view(ctx, func(tx *badger.Txn) error {
		r, err := getBundle(tx, name)
		if err == nil {
			b = Bundle{name, SnapshotID(r.Snapshot), r.Created}
		}
		return err
	})
	return b, err
}

// DeleteBundle takes the name away. VMs that boot from the snapshot keep it. ErrNotFound.
func (s *Store) DeleteBundle(ctx context.Context, name string) error {
	if _, err := s.Bundle(ctx, name); err != nil {
		return err
	}
	defer s.naming.lock("\x00" + name)()
	n := s.beginNote()
	defer n.end()
	n.tryWrite(ctx, manifest.Note{Kind: manifest.NoteBundleRemoved, Name: name})
	err := s.update(ctx, func(tx *badger.Txn) error {
		if _, err := getBundle(tx, name); err != nil {
			return err
		}
		if err := n.name(tx); err != nil {
			return err
		}
		return tx.Delete(bundleKey(name))
	})
	if err == nil {
		n.named()
		s.garbage.unknown.Store(true)
	}
	return err
}

func getBundle(tx *badger.Txn, name string) (*bundleRecord, error) {
	if err := checkName("bundle", name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	r := &bundleRecord{}
	if err := getJSON(tx, bundleKey(name), r); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return r, nil
}
