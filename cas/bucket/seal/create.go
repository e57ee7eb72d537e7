package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"flash/cas/bucket"
)

// SlotOptions of a new key slot. Zero values: no label, DefaultArgon2id, crypto/rand, the real clock.
type SlotOptions struct {
	Label    string
	Argon2id Argon2id
	Random   io.Reader
	Now      func() time.Time
}

func (o SlotOptions) withDefaults() SlotOptions {
	if o.Argon2id == (Argon2id{}) {
		o.Argon2id = DefaultArgon2id
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// CreateOptions of a new remote. Without a Secret it isn't sealed.
type CreateOptions struct {
	Secret *Secret // of the first slot
	Keys   *Keys   // of a remote whose marker was lost (KeysFromExport); nil: new ones. Then objects may be there already
	SlotOptions
}

// CreateMarker makes an empty bucket a remote. It returns the keys of a sealed one, else nil. ErrExists when it is one
// already, or becomes one at the same time; ErrForeign when something else is there.
func CreateMarker(ctx context.Context, b bucket.Bucket, o CreateOptions) (*Marker, *Keys, error) {
	o.SlotOptions = o.SlotOptions.withDefaults()
	if o.Keys != nil && o.Secret == nil {
		return nil, nil, errors.New("make a marker again: which secret shall open it?")
	}
	_, _, err := ReadMarker(ctx, b)
	switch {
	case err == nil:
		return nil, nil, fmt.Errorf("%s: %w", b.Location(), ErrExists)
	case errors.Is(err, ErrForeign) && o.Keys != nil && isMissing(ctx, b):
	case !errors.Is(err, ErrEmpty):
		return nil, nil, err
	}
	m, keys, err := newMarker(o)
	if err != nil {
		return nil, nil, err
	}
	if _, err := putMarker(ctx, b, m, bucket.Condition{Absent: true}); err != nil {
		keys.wipeUnless(o.Keys)
		if errors.Is(err, bucket.ErrCondition) {
			return nil, nil, fmt.Errorf("%s: another host has just made it one: %w", b.Location(), ErrExists)
		}
		return nil, nil, err
	}
	return m, keys, nil
}

// isMissing tells whether there is no marker, rather than one that isn't ours.
func isMissing(ctx context.Context, b bucket.Bucket) bool {
	_, err := b.Stat(ctx, MarkerKey)
	return errors.Is(err, bucket.ErrNotFound)
}

func newMarker(o CreateOptions) (*Marker, *Keys, error) {
	var id [idBytes]byte
	if _, err := io.ReadFull(o.Random, id[:]); err != nil {
		return nil, nil, fmt.Errorf("make a remote's id: %w", err)
	}
	m := &Marker{Flash: markerName, Format: markerFormat, ID: hex.EncodeToString(id[:]), Created: o.Now().UTC().Truncate(time.Second)}
	if o.Secret == nil {
		return m, nil, nil
	}
	keys := o.Keys
	if keys == nil {
		var err error
		if keys, err = newKeys(o.Random); err != nil {
			return nil, nil, err
		}
	}
	keys.mustBeWhole()
	slot, err := newSlot(keys, m.ID, *o.Secret, o.SlotOptions)
	if err != nil {
		keys.wipeUnless(o.Keys)
		return nil, nil, err
	}
	m.Seal = &Seal{Cipher: markerCipher, Check: keys.check(m.ID), Slots: []Slot{slot}}
	return m, keys, nil
}

// wipeUnless clears keys that aren't the caller's.
func (k *Keys) wipeUnless(callers *Keys) {
	if k != nil && k != callers {
		k.Wipe()
	}
}

func putMarker(ctx context.Context, b bucket.Bucket, m *Marker, c bucket.Condition) (bucket.Version, error) {
	text, err := m.encode()
	if err != nil {
		return "", err
	}
	v, err := b.Put(ctx, MarkerKey, bytes.NewReader(text), int64(len(text)), c)
	if err != nil {
		return "", fmt.Errorf("write the marker of %s: %w", b.Location(), err)
	}
	return v, nil
}
