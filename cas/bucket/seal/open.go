package seal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"flash/cas/bucket"
)

// Open gives the keys that a secret opens. ErrUnsealed, ErrPassphrase, ErrKeyFile.
func (m *Marker) Open(secret Secret) (*Keys, error) {
	keys, _, err := m.open(secret)
	return keys, err
}

// open tells also which slot it was; "" when the secret is the exported data key itself.
func (m *Marker) open(secret Secret) (*Keys, string, error) {
	if m.Seal == nil {
		return nil, "", ErrUnsealed
	}
	tried := 0
	for i := range m.Seal.Slots {
		s := &m.Seal.Slots[i]
		if s.Kind == secret.kind {
			tried++
		}
		if keys := s.open(m.ID, secret); keys != nil {
			if !keys.passes(m.Seal.Check, m.ID) {
				keys.Wipe()
				return nil, "", fmt.Errorf("key slot %s holds another key than the marker's check value says: %w", s.ID, ErrMarker)
			}
			return keys, s.ID, nil
		}
	}
	switch {
	case secret.kind == kindKeyFile:
		if len(secret.bytes) == keyBytes {
			keys := keysOf((*[keyBytes]byte)(secret.bytes))
			if keys.passes(m.Seal.Check, m.ID) {
				return keys, "", nil
			}
			keys.Wipe()
		}
		return nil, "", fmt.Errorf("it opens none of the %d key slots made for key files, nor is it the data key: %w", tried, ErrKeyFile)
	case tried == 0:
		return nil, "", fmt.Errorf("no key slot takes a passphrase, only a key file opens this remote: %w", ErrPassphrase)
	default:
		return nil, "", fmt.Errorf("it opens none of the %d key slots made for passphrases: %w", tried, ErrPassphrase)
	}
}

// AddSlot lets another secret open the remote.
func AddSlot(ctx context.Context, b bucket.Bucket, have, add Secret, o SlotOptions) (*Marker, error) {
	return changeSlots(ctx, b, have, func(m *Marker, keys *Keys, _ string) error {
		if len(m.Seal.Slots) >= maxSlots {
			return fmt.Errorf("add a key slot: there are %d, and no more may be", maxSlots)
		}
		slot, err := newSlot(keys, m.ID, add, o)
		if err != nil {
			return err
		}
		m.Seal.Slots = append(m.Seal.Slots, slot)
		return nil
	})
}

// RemoveSlot takes a slot away. have opens another slot, or is the data key: who has nothing else keeps the slot. ErrSlot,
// ErrLastSlot.
func RemoveSlot(ctx context.Context, b bucket.Bucket, have Secret, slotID string) (*Marker, error) {
	return changeSlots(ctx, b, have, func(m *Marker, _ *Keys, opened string) error {
		i := slices.IndexFunc(m.Seal.Slots, func(s Slot) bool { return s.ID == slotID })
		switch {
		case i < 0:
			return fmt.Errorf("remove key slot %q: %w", slotID, ErrSlot)
		case len(m.Seal.Slots) == 1:
			return fmt.Errorf("remove key slot %s: %w", slotID, ErrLastSlot)
		case opened == slotID:
			return fmt.Errorf("remove key slot %s: it is the one that was used now; use the secret that is to remain", slotID)
		}
		m.Seal.Slots = slices.Delete(m.Seal.Slots, i, i+1)
		return nil
	})
}

// Rotate replaces the slot that have opens by one for another secret, in one step: at no time both open it, nor none.
// The new slot keeps the label unless another is given.
func Rotate(ctx context.Context, b bucket.Bucket, have, next Secret, o SlotOptions) (*Marker, error) {
	return changeSlots(ctx, b, have, func(m *Marker, keys *Keys, opened string) error {
		i := slices.IndexFunc(m.Seal.Slots, func(s Slot) bool { return s.ID == opened })
		if i < 0 {
			return fmt.Errorf("rotate: the exported data key was given, which is in no slot; add one and remove the old one: %w", ErrSlot)
		}
		if o.Label == "" {
			o.Label = m.Seal.Slots[i].Label
		}
		slot, err := newSlot(keys, m.ID, next, o)
		if err != nil {
			return err
		}
		m.Seal.Slots[i] = slot
		return nil
	})
}

// slotTries bounds how often a change is made again because another host has changed the slots meanwhile.
const slotTries = 5

// slotChange changes a marker that was opened by the slot of the id opened; "": by the exported data key.
type slotChange func(m *Marker, keys *Keys, opened string) error

// changeSlots reads the marker, opens it, changes it and writes it if it is still the same.
func changeSlots(ctx context.Context, b bucket.Bucket, have Secret, change slotChange) (*Marker, error) {
	for try := 1; ; try++ {
		m, v, err := ReadMarker(ctx, b)
		if err != nil {
			return nil, err
		}
		err = changeOpened(m, have, change)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Location(), err)
		}
		_, err = putMarker(ctx, b, m, bucket.Condition{Match: v})
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, bucket.ErrCondition) || try == slotTries {
			return nil, err
		}
	}
}

func changeOpened(m *Marker, have Secret, change slotChange) error {
	keys, opened, err := m.open(have)
	if err != nil {
		return err
	}
	defer keys.Wipe()
	return change(m, keys, opened)
}
