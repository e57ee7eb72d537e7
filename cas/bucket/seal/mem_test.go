package seal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"flash/cas/bucket"
)

// mem is a bucket in memory that tells what it was asked, and lets a test change what is stored.
type mem struct {
	mu      sync.Mutex
	objects map[string][]byte
	asked   []string
	hook    func(request string) // called before a request is served, without the lock
}

func newMem() *mem { return &mem{objects: map[string][]byte{}} }

func (m *mem) begin(format string, args ...any) func() {
	request := fmt.Sprintf(format, args...)
	if m.hook != nil {
		m.hook(request)
	}
	m.mu.Lock()
	m.asked = append(m.asked, request)
	return m.mu.Unlock
}

func versionOf(object []byte) bucket.Version {
	sum := keyed(&[keyBytes]byte{}, object)
	return bucket.Version(fmt.Sprintf("%x", sum[:8]))
}

func (m *mem) Location() string { return "mem:" }

func (m *mem) Get(_ context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	defer m.begin("GET %s", key)()
	o, ok := m.objects[key]
	switch {
	case !ok:
		return nil, "", bucket.ErrNotFound
	case int64(len(o)) > limit:
		return nil, "", bucket.ErrTooLarge
	}
	return bytes.Clone(o), versionOf(o), nil
}

func (m *mem) GetRange(_ context.Context, key string, dst []byte, offset int64) error {
	defer m.begin("GET %s %d+%d", key, offset, len(dst))()
	o, ok := m.objects[key]
	switch {
	case !ok:
		return bucket.ErrNotFound
	case offset+int64(len(dst)) > int64(len(o)):
		return bucket.ErrShort
	}
	copy(dst, o[offset:])
	return nil
}

func (m *mem) Put(_ context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	sent := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), sent); err != nil {
		return "", err
	}
	defer m.begin("PUT %s", key)()
	o, ok := m.objects[key]
	if c.Absent && ok || c.Match != "" && (!ok || versionOf(o) != c.Match) {
		if !ok || !bytes.Equal(o, sent) {
			return "", bucket.ErrCondition
		}
	}
	m.objects[key] = sent
	return versionOf(sent), nil
}

func (m *mem) Stat(_ context.Context, key string) (bucket.Info, error) {
	defer m.begin("STAT %s", key)()
	o, ok := m.objects[key]
	if !ok {
		return bucket.Info{}, bucket.ErrNotFound
	}
	return bucket.Info{Key: key, Bytes: int64(len(o)), Version: versionOf(o)}, nil
}

func (m *mem) List(_ context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		end := m.begin("LIST %s", prefix)
		var infos []bucket.Info
		for _, k := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(k, prefix) {
				infos = append(infos, bucket.Info{Key: k, Bytes: int64(len(m.objects[k])), Version: versionOf(m.objects[k])})
			}
		}
		end()
		for _, i := range infos {
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (m *mem) Delete(_ context.Context, key string) error {
	defer m.begin("DELETE %s", key)()
	delete(m.objects, key)
	return nil
}

// requests gives what was asked since the last call.
func (m *mem) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	slices.Sort(asked) // a header and its range are asked for side by side
	return asked
}

func (m *mem) object(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.objects[key])
}

func (m *mem) set(key string, object []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key] = object
}

// testKeys are those of a data key of equal bytes.
func testKeys(b byte) *Keys {
	var data [keyBytes]byte
	for i := range data {
		data[i] = b
	}
	return keysOf(&data)
}

// plainOf makes bytes that differ wherever a segment could be taken for another.
func plainOf(n int) []byte {
	p := make([]byte, n)
	x := uint32(n) + 1
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}

func mustPut(t *testing.T, b bucket.Bucket, key string, data []byte) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t *testing.T, b bucket.Bucket, key string, want []byte) {
	t.Helper()
	got, _, err := b.Get(t.Context(), key, 1<<30)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("Get %s: %d bytes, %v; want the %d that were put", key, len(got), err, len(want))
	}
}
