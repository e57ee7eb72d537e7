package seal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"flash/cas/bucket"
)

// Bucket seals what goes into another bucket and opens what comes out. It is a bucket.Bucket.
type Bucket struct {
	below bucket.Bucket
	keys  objectKeys
	salts saltCache
}

var _ bucket.Bucket = (*Bucket)(nil)

// Wrap gives a bucket whose names and contents below are sealed with keys, of which it keeps what it needs: wiping them is
// right afterwards. The marker alone goes through as it is.
func Wrap(b bucket.Bucket, keys *Keys) *Bucket {
	keys.mustBeWhole()
	return &Bucket{below: b, keys: keys.objectKeys}
}

// Location is that of the bucket below.
func (s *Bucket) Location() string { return s.below.Location() }

// locate gives the stored key. A hash hides a key that isn't one from the bucket below, so it is checked here.
func (s *Bucket) locate(key string) (stored string, err error) {
	if err := bucket.CheckKey(key); err != nil {
		return "", err
	}
	return s.keys.storedKey(key), nil
}

// ListedKey says how List names the object that Get finds under key: who knows the plain keys finds them in a list so.
func (s *Bucket) ListedKey(key string) string { return s.keys.storedKey(key) }

// Get reads a whole object and opens it.
func (s *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	if key == MarkerKey {
		return s.below.Get(ctx, key, limit)
	}
	stored, err := s.locate(key)
	if err != nil {
		return nil, "", err
	}
	sealed, v, err := s.below.Get(ctx, stored, sealedBytesOf(min(max(limit, 0), maxPlainBytes)))
	if err != nil {
		return nil, "", named(key, stored, err)
	}
	plain, err := s.keys.open(sealed, stored)
	if err != nil {
		return nil, "", named(key, stored, err)
	}
	return plain, v, nil
}

// Put seals an object. r is read twice at least: once for the salt, and for each try.
func (s *Bucket) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	if key == MarkerKey {
		return s.below.Put(ctx, key, r, size, c)
	}
	stored, err := s.locate(key)
	if err != nil {
		return "", err
	}
	if err := bucket.CheckCondition(c); err != nil { // before all of r is read
		return "", err
	}
	if size < 0 || size > maxPlainBytes {
		return "", fmt.Errorf("seal %s: it can't have %d bytes", key, size)
	}
	h, err := s.keys.saltOf(ctx, stored, r, size)
	if err != nil {
		return "", named(key, stored, err)
	}
	sealed := newSealer(&s.keys, h, stored, r, size)
	v, err := s.below.Put(ctx, stored, sealed, sealed.bytes(), c)
	if err != nil {
		return "", named(key, stored, err)
	}
	return v, nil
}

// Stat tells the plain size, of which nobody vouches until the object is read. One of an impossible size has 0 bytes, as
// in a list: that it is there is an answer.
func (s *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if key == MarkerKey {
		return s.below.Stat(ctx, key)
	}
	stored, err := s.locate(key)
	if err != nil {
		return bucket.Info{}, err
	}
	info, err := s.below.Stat(ctx, stored)
	if err != nil {
		return bucket.Info{}, named(key, stored, err)
	}
	info.Key = key
	info.Bytes, _ = plainBytesOf(info.Bytes)
	return info, nil
}

// List yields stored keys, and plain sizes. prefix is empty or ends in '/' (or is that of a stored key): of the last
// element the bucket knows a hash only. An object of an impossible size is shown with 0 bytes, so that one can't hide the
// others.
func (s *Bucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if err := bucket.CheckPrefix(prefix); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		if _, last := splitKey(prefix); last != "" && !strings.HasPrefix(last, opaqueMark) {
			yield(bucket.Info{}, fmt.Errorf("list %s: names are sealed, so whole folders only can be listed: %w", prefix, bucket.ErrUnsupported))
			return
		}
		for info, err := range s.below.List(ctx, prefix) {
			if err != nil {
				yield(bucket.Info{}, err)
				return
			}
			if info.Key != MarkerKey {
				if _, last := splitKey(info.Key); !isOpaque(last) {
					continue
				}
				info.Bytes, _ = plainBytesOf(info.Bytes)
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Delete removes an object.
func (s *Bucket) Delete(ctx context.Context, key string) error {
	stored, err := s.locate(key)
	if err != nil {
		return err
	}
	s.salts.forget(stored)
	return named(key, stored, s.below.Delete(ctx, stored))
}

// named says of which object a failure tells: the key that was asked for, and where the object lies. The bucket below names
// the stored key in its own failures; that is enough there.
func named(key, stored string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bucket.ErrIntegrity) && stored != key:
		return fmt.Errorf("open %s, stored as %s: %w", key, stored, err)
	default:
		return fmt.Errorf("%s, sealed: %w", key, err)
	}
}
