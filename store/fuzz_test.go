package store

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	badger "github.com/dgraph-io/badger/v4"
)

// Whatever stands under any key of the database, reading, marking and planning what may go give an answer or an error: a
// record that can't be read is never taken for none, and nothing panics.
func FuzzRecords(f *testing.F) {
	s, _ := newStore(f)
	ctx := context.Background()
	newVM(f, s, "a")
	for i := range uint64(3) {
		checkpoint(f, s, "a", memBytes, delta{i: page(i)})
	}
	if err := s.CreateVM(ctx, VM{ID: "b"}, &ForkPoint{"a", 2}); err != nil {
		f.Fatal(err)
	}
	prefixes := []string{bundlePrefix, vmPrefix, historyPrefix, ledgerPrefix, ledgerHeadKeys, workingPrefix, deletedPrefix, retentionPrefix, settingsKey}
	err := s.view(ctx, func(tx *badger.Txn) error { // what is there now is what the seeds are
		for i, prefix := range prefixes {
			if err := scan(tx, []byte(prefix), func(key, value []byte) error {
				f.Add(uint8(i), key[len(prefix):], value)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(2), []byte("a"), []byte(`{"parent":-1,"snapshot":"00","label":"x"}`))
	f.Add(uint8(3), binary.BigEndian.AppendUint64([]byte("a\x00"), 2), []byte(`{"kind":"exec","data":null,"prev":"","hash":""}`))
	f.Add(uint8(5), make([]byte, 32), []byte{workingVersion, 2, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add(uint8(7), []byte("a"), []byte(`{"keep_last":-1}`))
	f.Add(uint8(8), []byte{}, []byte(`{"every_minutes":-5}`))
	f.Fuzz(func(t *testing.T, which uint8, rest, value []byte) {
		key := append([]byte(prefixes[int(which)%len(prefixes)]), rest...)
		if len(key) > 1000 {
			t.Skip("Badger has no such keys")
		}
		var before []byte
		set := func(p []byte) error {
			return s.db.Update(func(tx *badger.Txn) (err error) {
				if before == nil {
					if before, err = get(tx, key); err != nil {
						return err
					}
				}
				if p == nil {
					return tx.Delete(key)
				}
				return tx.Set(key, p)
			})
		}
		if err := set(value); err != nil {
			t.Skip(err)
		}
		defer func() { set(before) }()

		if _, err := s.Ledger(ctx, "a"); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrNotFound) {
			t.Errorf("the ledger: %v", err)
		}
		s.VMs(ctx)
		s.History(ctx, "a")
		s.History(ctx, "b")
		s.Checkpoint(ctx, "a", 2)
		s.Bundles(ctx)
		s.Retentions(ctx)
		s.Settings(ctx)
		if len(rest) == 32 {
			s.WorkingSet(ctx, SnapshotID(rest))
		}
		for _, err := range s.Roots(ctx) {
			if err != nil {
				break
			}
		}
		s.ForgetWorkingSets(ctx)
		s.GC(ctx, GCOptions{})
		s.Check(ctx, CheckOptions{})
	})
}
