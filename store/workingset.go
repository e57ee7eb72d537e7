package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	badger "github.com/dgraph-io/badger/v4"

	"flash/cas"
	"flash/store/manifest"
)

// MaxWorkingSet bounds a remembered working set, in slots.
const MaxWorkingSet = 1 << 16

// A working set is stored as u8 1, the version, then each slot's distance from the one before as a signed varint.
const workingVersion = 1

// 64 Ki slots of at most 6 bytes (distances of 37 bits) are below what a value may have.
const _ = uint(maxValueBytes - 1 - MaxWorkingSet*6)

// SetWorkingSet remembers which slots of "mem" a restore of this snapshot touched first, in order of first touch.
// At most MaxWorkingSet are kept. It is advice: losing it costs speed only.
func (s *Store) SetWorkingSet(ctx context.Context, id SnapshotID, slots []uint64) error {
	p := []byte{workingVersion}
	last := uint64(0)
	for _, slot := range slots[:min(len(slots), MaxWorkingSet)] {
		if slot >= maxSlots {
			return fmt.Errorf("working set of snapshot %s: slot %d", id, slot)
		}
		p = binary.AppendVarint(p, int64(slot-last))
		last = slot
	}
	return s.update(ctx, func(tx *badger.Txn) error { return tx.Set(workingKey(id), p) })
}

const maxSlots = manifest.MaxImageBytes / cas.SlotBytes

// WorkingSet gives what was remembered; nil when nothing was.
func (s *Store) WorkingSet(ctx context.Context, id SnapshotID) (slots []uint64, err error) {
	var p []byte
	err = s.view(ctx, func(tx *badger.Txn) error {
		p, err = get(tx, workingKey(id))
		return err
	})
	if err != nil || p == nil {
		return nil, err
	}
	if len(p) == 0 || p[0] != workingVersion {
		return nil, fmt.Errorf("working set of snapshot %s: %w", id, ErrFormat)
	}
	last := uint64(0)
	for p = p[1:]; len(p) > 0; {
		distance, width := binary.Varint(p)
		if last += uint64(distance); width <= 0 || last >= maxSlots || len(slots) == MaxWorkingSet {
			return nil, fmt.Errorf("working set of snapshot %s: %w", id, ErrFormat)
		}
		slots = append(slots, last)
		p = p[width:]
	}
	return slots, nil
}

// ForgetWorkingSets removes those of snapshots that are no roots any more, at most 4096 at once, and tells how many. For gc.
func (s *Store) ForgetWorkingSets(ctx context.Context) (forgotten int, err error) {
	roots, err := s.roots(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("forget working sets: %w", err)
	}
	err = s.update(ctx, func(tx *badger.Txn) error {
		for _, key := range keysWith(tx, []byte(workingPrefix), math.MaxInt) {
			if len(key) != len(workingPrefix)+len(SnapshotID{}) {
				return errKey(key)
			}
			id := SnapshotID(key[len(workingPrefix):])
			if _, ok := roots.snapshots[id]; ok || forgotten == deleteKeys {
				continue
			}
			forgotten++
			if err := tx.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
	return forgotten, err
}
