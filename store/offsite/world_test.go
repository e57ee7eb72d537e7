package offsite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/castest"
	"flash/cas/local"
	"flash/cas/remote"
	"flash/cas/tiered"
	"flash/store"
)

// memory is a bucket in a map, shared by hosts.
type memory struct {
	mu      sync.Mutex // guards the rest
	objects map[string]memObject
	writes  uint64
}

type memObject struct {
	data    []byte
	version bucket.Version
}

func newMemory() *memory { return &memory{objects: map[string]memObject{}} }

// copy gives the bucket as it is at this instant.
func (m *memory) copy() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{objects: maps.Clone(m.objects), writes: m.writes}
}

func (m *memory) keys(prefix string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for k := range m.objects {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// damage flips a bit of an object.
func (m *memory) damage(key string, offset int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[key]
	o.data = bytes.Clone(o.data)
	o.data[offset] ^= 1
	m.objects[key] = o
}

func (m *memory) remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// view is the bucket as one host reaches it, until it is killed or cut off.
type view struct {
	*memory
	mu     sync.Mutex // guards the rest
	ops    int
	killAt int  // the operation at which the host dies; 0: never
	after  bool // it dies right after the operation, not before
	dead   bool
	away   bool // the bucket can't be reached
	hook   func(op, key string)
}

var errKilled = errors.New("the host was killed")

// do runs one operation.
func (v *view) do(ctx context.Context, op, key string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v.mu.Lock()
	v.ops++
	hook, dies := v.hook, v.killAt != 0 && v.ops == v.killAt
	if v.dead || dies && !v.after {
		v.dead = true
		v.mu.Unlock()
		return errKilled
	}
	if v.away {
		v.mu.Unlock()
		return fmt.Errorf("%s %s: %w", op, key, bucket.ErrUnavailable)
	}
	v.mu.Unlock()
	if hook != nil {
		hook(op, key)
	}
	v.memory.mu.Lock()
	err := f()
	v.memory.mu.Unlock()
	if dies {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.dead = true
		return errKilled
	}
	return err
}

func (v *view) Get(ctx context.Context, key string, limit int64) (p []byte, version bucket.Version, err error) {
	err = v.do(ctx, "get", key, func() error {
		o, ok := v.objects[key]
		if !ok {
			return fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
		}
		if int64(len(o.data)) > limit {
			return bucket.ErrTooLarge
		}
		p, version = bytes.Clone(o.data), o.version
		return nil
	})
	return p, version, err
}

func (v *view) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	return v.do(ctx, "get", key, func() error {
		o, ok := v.objects[key]
		if !ok {
			return fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
		}
		if offset > int64(len(o.data)) || copy(dst, o.data[offset:]) < len(dst) {
			return bucket.ErrShort
		}
		return nil
	})
}

func (v *view) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (version bucket.Version, err error) {
	data := make([]byte, size)
	if _, err := r.ReadAt(data, 0); err != nil && err != io.EOF {
		return "", err
	}
	err = v.do(ctx, "put", key, func() error {
		o, ok := v.objects[key]
		switch {
		case c.Absent && ok, c.Match != "" && ok && o.version != c.Match:
			if bytes.Equal(o.data, data) {
				version = o.version
				return nil
			}
			return fmt.Errorf("%s: %w", key, bucket.ErrCondition)
		case c.Match != "" && !ok:
			return fmt.Errorf("%s: %w", key, bucket.ErrCondition)
		}
		v.writes++
		version = bucket.Version(fmt.Sprint(v.writes))
		v.objects[key] = memObject{data, version}
		return nil
	})
	return version, err
}

func (v *view) Stat(ctx context.Context, key string) (info bucket.Info, err error) {
	err = v.do(ctx, "stat", key, func() error {
		o, ok := v.objects[key]
		if !ok {
			return fmt.Errorf("%s: %w", key, bucket.ErrNotFound)
		}
		info = bucket.Info{Key: key, Bytes: int64(len(o.data)), Version: o.version}
		return nil
	})
	return info, err
}

func (v *view) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		var all []bucket.Info
		err := v.do(ctx, "list", prefix, func() error {
			for k, o := range v.objects {
				if strings.HasPrefix(k, prefix) {
					all = append(all, bucket.Info{Key: k, Bytes: int64(len(o.data)), Version: o.version})
				}
			}
			return nil
		})
		if err != nil {
			yield(bucket.Info{}, err)
			return
		}
		slices.SortFunc(all, func(a, b bucket.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (v *view) Delete(ctx context.Context, key string) error {
	return v.do(ctx, "delete", key, func() error { delete(v.objects, key); return nil })
}

func (v *view) Location() string { return "mem://bucket" }

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0).UTC()} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// host is a data directory with everything above it.
type host struct {
	t     testing.TB
	id    HostID
	name  string
	dir   string
	clock *clock
	grace time.Duration
	fs    local.FS
	packs string // their folder

	*view
	near   *local.Store
	chunks *tiered.Store
	s      *store.Store
	far    *remote.Remote
	*Offsite
}

func newHost(t testing.TB, name string, m *memory, c *clock) *host {
	h := &host{t: t, id: HostID{name[0], 7}, name: name, dir: t.TempDir(), clock: c, grace: -1, view: &view{memory: m}}
	h.fs, h.packs = castest.NewCrashFS(uint64(name[0])), "/chunks" // packs on no disk: syncs there are what is slow
	h.open()
	t.Cleanup(h.close)
	return h
}

// newHostOnDisk has its packs where a test can reach them.
func newHostOnDisk(t testing.TB, name string, m *memory, c *clock) *host {
	h := &host{t: t, id: HostID{name[0], 7}, name: name, dir: t.TempDir(), clock: c, grace: -1, view: &view{memory: m}}
	h.fs, h.packs = local.OSFS{}, filepath.Join(h.dir, "chunks")
	h.open()
	t.Cleanup(h.close)
	return h
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

func (h *host) open() {
	h.t.Helper()
	ctx := context.Background()
	var err error
	h.near, err = local.Open(ctx, local.Config{Dir: h.packs, FS: h.fs, TargetPackBytes: 64 << 10, ReserveBytes: -1, Workers: 1})
	h.must(err)
	h.chunks = tiered.New(h.near)
	h.s, err = store.Open(ctx, store.Config{Dir: filepath.Join(h.dir, "meta"), Chunks: h.chunks, Workers: 1, Now: h.clock.read})
	h.must(err)
	h.connect("")
}

// connect makes what stands between the store and the bucket.
func (h *host) connect(cache string) { h.connectBy(h.view, cache) }

// connectTo reaches a bucket of another kind.
func (h *host) connectTo(b bucket.Bucket) { h.connectBy(b, "") }

func (h *host) connectBy(b bucket.Bucket, cache string) {
	h.t.Helper()
	ctx := context.Background()
	var err error
	h.far, err = remote.Open(ctx, remote.Config{Bucket: b, CacheDir: cache, InFlight: 4})
	h.must(err)
	h.chunks.SetFar("mem", h.far)
	h.Offsite, err = Open(ctx, Config{Name: "mem", Store: h.s, Packs: h.near, Bucket: b, Remote: h.far, Host: h.id, HostName: h.name,
		Grace: h.grace, Now: h.clock.read})
	h.must(err)
	h.Offsite.wait = func(ctx context.Context, d time.Duration) error {
		if d == leaseTime/5 { // renewals: never in a test's time, unless it asks for them
			<-ctx.Done()
			return ctx.Err()
		}
		h.clock.advance(d)
		return ctx.Err()
	}
}

func (h *host) close() {
	if h.s != nil {
		h.must(errors.Join(h.s.Close(), h.far.Close(), h.near.Close()))
		h.s = nil
	}
}

// restart is what follows a kill: another process, which reaches the bucket again.
func (h *host) restart() {
	h.t.Helper()
	h.close()
	h.view = &view{memory: h.memory}
	h.open()
}

// reconnect forgets all that is known of the bucket, as a new process would, and reaches it again.
func (h *host) reconnect() { h.on(h.memory) }

// on reaches another bucket.
func (h *host) on(m *memory) {
	h.t.Helper()
	h.view = &view{memory: m}
	h.connect("")
}

const (
	imageSlots = 300 // two leaves and a half
	imageBytes = imageSlots * cas.SlotBytes
)

// state is what an image holds: the seed of each slot's page.
type state map[uint64]uint64

func (s state) Slots() iter.Seq[uint64] { return slices.Values(slices.Sorted(maps.Keys(s))) }

func (s state) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, page(s[slot]))
	return nil
}

// page is a page no other seed gives; 0 gives zeros.
func page(seed uint64) []byte {
	p := make([]byte, cas.SlotBytes)
	if seed != 0 {
		rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24), byte(seed >> 32)})
		rng.Read(p)
	}
	return p
}

func (h *host) create(vm string) {
	h.t.Helper()
	h.must(h.s.CreateVM(context.Background(), store.VM{ID: vm, Spec: []byte(`{"mem":1}`)}, nil))
}

// checkpoint appends one with slots changed.
func (h *host) checkpoint(vm string, ch state) int {
	h.t.Helper()
	ctx := context.Background()
	v, err := h.s.VM(ctx, vm)
	h.must(err)
	var parent store.SnapshotID
	if v.Head >= 0 {
		head, err := h.s.Checkpoint(ctx, vm, v.Head)
		h.must(err)
		parent = head.Snapshot
	}
	txn, err := h.s.Begin(ctx, parent)
	h.must(err)
	defer txn.Abort()
	_, err = txn.PutImage(ctx, store.ImageSpec{Name: "mem", Bytes: imageBytes}, ch)
	h.must(err)
	c, err := txn.Commit(ctx, store.Meta{Kind: "checkpoint"}, store.Move{VM: vm, ExpectHead: v.Head, Label: fmt.Sprintf("command %d", v.Next)})
	h.must(err)
	return c.Number
}

// mustHold compares a checkpoint's image with what it should be.
func (h *host) mustHold(vm string, n int, want state) {
	h.t.Helper()
	if err := h.holds(vm, n, want); err != nil {
		h.t.Fatalf("host %s: %v", h.name, err)
	}
}

func (h *host) holds(vm string, n int, want state) error {
	ctx := context.Background()
	c, err := h.s.Checkpoint(ctx, vm, n)
	if err != nil {
		return err
	}
	return holdsSnapshot(ctx, h.s, c.Snapshot, want)
}

func holdsSnapshot(ctx context.Context, s *store.Store, id store.SnapshotID, want state) error {
	sn, err := s.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	im, err := sn.Image(ctx, "mem")
	if err != nil {
		return err
	}
	var all []uint64
	for slot := range im.Slots() {
		all = append(all, slot)
	}
	return im.ReadSlots(ctx, all, func(slot uint64, data []byte) error {
		if data == nil {
			data = page(0)
		}
		if !bytes.Equal(data, page(want[slot])) {
			return fmt.Errorf("snapshot %s slot %d holds other bytes than were put", id, slot)
		}
		return nil
	})
}

func (h *host) push(vm string) PushReport {
	h.t.Helper()
	r, err := h.Push(context.Background(), PushRequest{VM: vm})
	h.must(err)
	return r
}

func (h *host) pull(r PullRequest) PullReport {
	h.t.Helper()
	rep, err := h.Pull(context.Background(), r)
	h.must(err)
	return rep
}

// apart cuts the host off from its far tier: what it reads then is near.
func (h *host) apart(f func()) {
	h.setAway(true)
	defer h.setAway(false)
	f()
}

func (v *view) setAway(away bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away = away
}

func (v *view) requests() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ops
}

func (v *view) onOp(hook func(op, key string)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hook = hook
}
