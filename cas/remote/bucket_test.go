package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"flash/cas/bucket"
)

// memoryBucket is a bucket in a map. fault is asked before every operation, and after every put and delete that was done:
// an error from it is what the caller gets.
type memoryBucket struct {
	mu      sync.Mutex // guards the rest
	objects map[string][]byte
	ops     int
	gets    int // ranged ones
	fault   func(op int, verb, key string, done bool) error
}

var _ bucket.Bucket = (*memoryBucket)(nil)

func newBucket() *memoryBucket { return &memoryBucket{objects: map[string][]byte{}} }

// copy is the bucket as it is now, without faults.
func (b *memoryBucket) copy() *memoryBucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &memoryBucket{objects: maps.Clone(b.objects)}
}

func (b *memoryBucket) setFault(f func(op int, verb, key string, done bool) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.ops = f, 0
}

func (b *memoryBucket) count() (ops, gets int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ops, b.gets
}

func (b *memoryBucket) keys(prefix string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []string
	for k := range b.objects {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// change replaces an object, or removes it when f gives nil.
func (b *memoryBucket) change(key string, f func(p []byte) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := f(bytes.Clone(b.objects[key])); p != nil {
		b.objects[key] = p
	} else {
		delete(b.objects, key)
	}
}

// begin counts an operation. mu is taken, and held when there is no error.
func (b *memoryBucket) begin(ctx context.Context, verb, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	b.ops++
	op, fault := b.ops, b.fault
	if fault == nil {
		return nil
	}
	b.mu.Unlock()
	if err := fault(op, verb, key, false); err != nil {
		return err
	}
	b.mu.Lock()
	return nil
}

// end gives the error of an operation that was done. mu is held, and let go.
func (b *memoryBucket) end(verb, key string) error {
	op, fault := b.ops, b.fault
	b.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op, verb, key, true)
}

func versionOf(p []byte) bucket.Version {
	sum := sha256.Sum256(p)
	return bucket.Version(hex.EncodeToString(sum[:8]))
}

func (b *memoryBucket) Get(ctx context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	if err := b.begin(ctx, "get", key); err != nil {
		return nil, "", err
	}
	defer b.mu.Unlock()
	p, ok := b.objects[key]
	switch {
	case !ok:
		return nil, "", fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
	case int64(len(p)) > limit:
		return nil, "", fmt.Errorf("%s: %w", key, bucket.ErrTooLarge)
	}
	return bytes.Clone(p), versionOf(p), nil
}

func (b *memoryBucket) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	if err := b.begin(ctx, "range", key); err != nil {
		return err
	}
	defer b.mu.Unlock()
	b.gets++
	p, ok := b.objects[key]
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
	case offset+int64(len(dst)) > int64(len(p)):
		return fmt.Errorf("%s: %w", key, bucket.ErrShort)
	}
	copy(dst, p[offset:])
	return nil
}

func (b *memoryBucket) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	p := make([]byte, size)
	if n, err := r.ReadAt(p, 0); int64(n) != size {
		return "", fmt.Errorf("%s: read %d of %d bytes: %v", key, n, size, err)
	}
	if err := b.begin(ctx, "put", key); err != nil {
		return "", err
	}
	have, ok := b.objects[key]
	if c.Absent && ok && !bytes.Equal(have, p) || c.Match != "" && (!ok || versionOf(have) != c.Match && !bytes.Equal(have, p)) {
		b.mu.Unlock()
		return "", fmt.Errorf("%s: %w", key, bucket.ErrCondition)
	}
	b.objects[key] = p
	return versionOf(p), b.end("put", key)
}

func (b *memoryBucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if err := b.begin(ctx, "stat", key); err != nil {
		return bucket.Info{}, err
	}
	defer b.mu.Unlock()
	p, ok := b.objects[key]
	if !ok {
		return bucket.Info{}, fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
	}
	return bucket.Info{Key: key, Bytes: int64(len(p)), Version: versionOf(p), Modified: time.Unix(0, 0)}, nil
}

func (b *memoryBucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if err := b.begin(ctx, "list", prefix); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		var infos []bucket.Info
		for k, p := range b.objects {
			if strings.HasPrefix(k, prefix) {
				infos = append(infos, bucket.Info{Key: k, Bytes: int64(len(p)), Version: versionOf(p)})
			}
		}
		b.mu.Unlock()
		slices.SortFunc(infos, func(a, b bucket.Info) int { return strings.Compare(a.Key, b.Key) })
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (b *memoryBucket) Delete(ctx context.Context, key string) error {
	if err := b.begin(ctx, "delete", key); err != nil {
		return err
	}
	delete(b.objects, key)
	return b.end("delete", key)
}

func (b *memoryBucket) Location() string { return "memory://test" }

var errOutage = fmt.Errorf("reset: %w", bucket.ErrUnavailable)

// nth fails the nth operation (1: the first), before it is done or after; it tells whether it did.
func (b *memoryBucket) nth(n int, after bool) (failed *bool) {
	failed = new(bool)
	b.setFault(func(op int, verb, key string, done bool) error {
		if op == n && done == (after && (verb == "put" || verb == "delete")) {
			*failed = true
			return errOutage
		}
		return nil
	})
	return failed
}
