package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
)

const (
	// Badger maps its logs into memory: on a full disk a write to them is a SIGBUS that nothing can catch. So no
	// transaction begins with less than this free: two memtables' logs of twice memTableBytes and a value log of twice
	// valueLogBytes, all of them sparse at first. It is below what cas/local leaves free, so that a store too full for
	// chunks can still be told what its VMs do.
	reserveBytes = 2*2*memTableBytes + 2*valueLogBytes

	// maxValueBytes bounds what callers may store under one key; Badger keeps it out of the value log.
	maxValueBytes = 512 << 10
)

// view runs fn on a consistent view.
func (s *Store) view(ctx context.Context, fn func(tx *badger.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return s.db.View(fn)
}

// update runs fn and commits what it wrote: synced when nil is returned, nothing changed when an error is.
func (s *Store) update(ctx context.Context, fn func(tx *badger.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return ErrClosed
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.checkSpace(); err != nil {
		return err
	}
	tx := s.db.NewTransaction(true)
	defer tx.Discard()
	if err := fn(tx); err != nil {
		return err
	}
	if s.beforeCommit != nil {
		if err := s.beforeCommit(); err != nil {
			return err
		}
	}
	if err := s.witness.enter(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := s.witness.saw(); err != nil {
		// What was committed stands; that the witness is behind takes only some of its use.
		s.log.Error("the database's witness can't be written", "err", err)
	}
	return nil
}

// checkSpace refuses to write where a write could be the death of the process.
func (s *Store) checkSpace() error {
	free, err := s.freeBytes(s.dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", s.dir, err)
	}
	if free < reserveBytes {
		return fmt.Errorf("%d MiB free in %s, at least %d MiB are kept: %w", free>>20, s.dir, reserveBytes>>20, cas.ErrNoSpace)
	}
	return nil
}

// get copies a value; nil when there is none.
func get(tx *badger.Txn, key []byte) ([]byte, error) {
	item, err := tx.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := item.ValueCopy(nil)
	if v == nil && err == nil {
		v = []byte{}
	}
	return v, err
}

// getJSON decodes a value into out; ErrNotFound when there is none.
func getJSON(tx *badger.Txn, key []byte, out any) error {
	v, err := get(tx, key)
	if err != nil {
		return err
	}
	if v == nil {
		return ErrNotFound
	}
	return decodeJSON(key, v, out)
}

func decodeJSON(key, v []byte, out any) error {
	if err := json.Unmarshal(v, out); err != nil {
		return fmt.Errorf("record %q: %w: %w", key, err, ErrFormat)
	}
	return nil
}

func putJSON(tx *badger.Txn, key []byte, in any) error {
	v, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if len(v) > maxValueBytes {
		return fmt.Errorf("record %q of %d bytes, at most %d", key, len(v), maxValueBytes)
	}
	return tx.Set(key, v)
}

// scan calls each for every key with the prefix, ascending. key and value are valid until each returns.
func scan(tx *badger.Txn, prefix []byte, each func(key, value []byte) error) error {
	o := badger.DefaultIteratorOptions
	o.Prefix = prefix
	it := tx.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if err := item.Value(func(v []byte) error { return each(item.Key(), v) }); err != nil {
			return err
		}
	}
	return nil
}

// keysWith lists up to limit keys with the prefix; all for a negative limit.
func keysWith(tx *badger.Txn, prefix []byte, limit int) [][]byte {
	o := badger.DefaultIteratorOptions
	o.Prefix, o.PrefetchValues = prefix, false
	it := tx.NewIterator(o)
	defer it.Close()
	var keys [][]byte
	for it.Rewind(); it.Valid() && (limit < 0 || len(keys) < limit); it.Next() {
		keys = append(keys, it.Item().KeyCopy(nil))
	}
	return keys
}

func isEmpty(tx *badger.Txn) bool { return len(keysWith(tx, nil, 1)) == 0 }

// hexHash is a hash as JSON text.
type hexHash cas.Hash

func (h hexHash) MarshalText() ([]byte, error) { return []byte(cas.Hash(h).String()), nil }

func (h *hexHash) UnmarshalText(p []byte) error {
	parsed, err := cas.ParseHash(string(p))
	*h = hexHash(parsed)
	return err
}
