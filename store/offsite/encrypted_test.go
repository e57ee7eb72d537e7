package offsite

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/bucket/seal"
	"flash/cas/local"
	"flash/cas/remote"
	"flash/cas/tiered"
	"flash/store"
)

const docPassphrase = "correct horse battery staple"

// encrypt makes a bucket an encrypted remote; without a passphrase a plain one, whose keys are nil.
func encrypt(t *testing.T, m *memory, passphrase string) *seal.Keys {
	t.Helper()
	o := seal.CreateOptions{SlotOptions: seal.SlotOptions{Argon2id: seal.Argon2id{Time: 1, MemoryKiB: 8 << 10, Threads: 1}}}
	if passphrase != "" {
		secret, err := seal.Passphrase([]byte(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		o.Secret = &secret
	}
	_, keys, err := seal.CreateMarker(t.Context(), &view{memory: m}, o)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// newHostOver is newHost over a bucket that is encrypted with keys; nil: that isn't.
func newHostOver(t *testing.T, name string, m *memory, c *clock, keys *seal.Keys) *host {
	t.Helper()
	h := &host{t: t, id: HostID{name[0], 7}, name: name, dir: t.TempDir(), clock: c, grace: -1, view: &view{memory: m}}
	b := bucket.Bucket(h.view)
	if keys != nil {
		b = seal.Wrap(b, keys)
	}
	ctx := context.Background()
	var err error
	h.near, err = local.Open(ctx, local.Config{Dir: filepath.Join(h.dir, "chunks"), TargetPackBytes: 256 << 10, ReserveBytes: -1, Workers: 1})
	h.must(err)
	h.far, err = remote.Open(ctx, remote.Config{Bucket: b, CacheDir: filepath.Join(h.dir, "cache"), InFlight: 4})
	h.must(err)
	h.chunks = tiered.New(h.near)
	h.chunks.SetFar("mem", h.far)
	h.s, err = store.Open(ctx, store.Config{Dir: filepath.Join(h.dir, "meta"), Chunks: h.chunks, Workers: 1, Now: c.read})
	h.must(err)
	h.Offsite, err = Open(ctx, Config{Name: "mem", Store: h.s, Packs: h.near, Bucket: b, Remote: h.far, Host: h.id, HostName: h.name, Grace: h.grace, Now: c.read})
	h.must(err)
	t.Cleanup(h.close)
	return h
}

// pages are an image's changed slots and what they hold.
type pages map[uint64][]byte

func (p pages) Slots() iter.Seq[uint64] { return slices.Values(slices.Sorted(maps.Keys(p))) }

func (p pages) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, p[slot])
	return nil
}

// put takes a checkpoint with an image changed, and gives its number.
func (h *host) put(vm string, bytes uint64, ch pages) uint32 {
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
	_, err = txn.PutImage(ctx, store.ImageSpec{Name: "mem", Bytes: bytes}, ch)
	h.must(err)
	meta := store.Meta{Kind: "checkpoint", Facts: map[string]string{"machine": "pc", "cpu": "qemu64"}}
	c, err := txn.Commit(ctx, meta, store.Move{VM: vm, ExpectHead: v.Head, Label: "make test"})
	h.must(err)
	return uint32(c.Number)
}

// TestAReaderWrittenFromTheDocumentsFindsEveryPage holds the documents to the code: docReader knows the one only.
func TestAReaderWrittenFromTheDocumentsFindsEveryPage(t *testing.T) {
	for name, passphrase := range map[string]string{"plain": "", "encrypted": docPassphrase} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			h := newHostOver(t, "alpha", m, newClock(), encrypt(t, m, passphrase))
			const slots = 128*3 + 5
			first, second := pages{}, pages{}
			for i := range uint64(slots) {
				switch i % 5 {
				case 0, 1:
					first[i] = page(i + 1) // random
				case 2:
					first[i] = bytes.Repeat([]byte("\x00flash\x00\x01"), cas.SlotBytes/8) // one pattern
				case 3:
					first[i] = append(bytes.Repeat([]byte("text "), 700), page(i)[:596]...) // compresses
				}
			}
			for _, i := range []uint64{3, 4, 200, 201, slots - 1} {
				second[i] = page(1000 + i)
			}
			second[0] = page(0) // becomes zero
			h.create("agent-1")
			one := h.put("agent-1", slots*cas.SlotBytes, first)
			two := h.put("agent-1", slots*cas.SlotBytes, second)
			h.create("another")
			h.put("another", slots*cas.SlotBytes, pages{7: page(7)})
			h.push("another")
			h.push("agent-1")

			r := &docReader{objects: map[string][]byte{}, codecs: map[byte]int{}}
			for _, k := range m.keys("") {
				r.objects[k] = m.objects[k].data
			}
			if err := r.open(passphrase); err != nil {
				t.Fatal(err)
			}
			snapshots, err := r.checkpoints("agent-1")
			if err != nil || len(snapshots) != 2 {
				t.Fatalf("%v, %v", snapshots, err)
			}
			want := make([]byte, slots*cas.SlotBytes)
			for number, changed := range []pages{first, second} {
				for slot, data := range changed {
					copy(want[slot*cas.SlotBytes:][:cas.SlotBytes], data)
				}
				got, err := r.image(snapshots[[]uint32{one, two}[number]], "mem")
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("checkpoint %d: %v, or other bytes than were put", number+1, err)
				}
			}
			if r.nodes < 8 || r.patches == 0 || len(r.codecs) < 2 || passphrase != "" && r.segments < 10 {
				t.Errorf("%d nodes, %d patches, %d segments, codecs %v were met: there is too little to read", r.nodes, r.patches, r.segments, r.codecs)
			}
		})
	}
}

// TestHistoriesTravelThroughAnEncryptedBucket: what holds of any bucket holds of one whose names and bytes are sealed, and
// nothing in it tells of what is there.
func TestHistoriesTravelThroughAnEncryptedBucket(t *testing.T) {
	ctx := t.Context()
	m, c := newMemory(), newClock()
	keys := encrypt(t, m, docPassphrase)
	a, b := newHostOver(t, "alpha", m, c, keys), newHostOver(t, "beta", m, c, keys)
	a.create("agent-1")
	secret := []byte("a secret that no bucket may show. ")
	a.put("agent-1", imageBytes, pages{1: bytes.Repeat(secret, 120), 2: page(2), 299: page(3)})
	a.push("agent-1")
	if r := a.push("agent-1"); r.Packs != 0 {
		t.Errorf("the second push uploads %+v", r)
	}
	b.pull(PullRequest{VM: "agent-1", TakeOver: true})
	b.put("agent-1", imageBytes, pages{4: page(4)})
	b.push("agent-1")
	a.put("agent-1", imageBytes, pages{5: page(5)})
	if _, err := a.Push(ctx, PushRequest{VM: "agent-1"}); !errors.Is(err, ErrNotOwner) {
		t.Errorf("the old owner's push: %v", err)
	}
	b.create("gone")
	b.put("gone", imageBytes, pages{1: page(77), 2: page(78), 3: page(79)})
	b.push("gone")
	b.must(b.Remove(ctx, "gone"))
	b.gc()
	if r := a.gc(); r.FreedPacks == 0 {
		t.Errorf("nothing is freed: %+v", r)
	}
	if r, err := a.Check(ctx, 1, nil); err != nil || len(r.Findings) != 0 {
		t.Errorf("%+v, %v", r.Findings, err)
	}
	d := newHostOver(t, "delta", m, c, keys)
	d.pull(PullRequest{VM: "agent-1"})
	d.apart(func() {
		at, err := d.s.Checkpoint(ctx, "agent-1", 2)
		d.must(err)
		if err := holdsSnapshot(ctx, d.s, at.Snapshot, state{2: 2, 299: 3, 4: 4}); err == nil {
			t.Error("slot 1 holds no seed's page, so it must differ")
		} else if !strings.Contains(err.Error(), "slot 1 ") {
			t.Error(err)
		}
	})
	for _, k := range m.keys("") {
		for _, tells := range [][]byte{secret[:16], []byte("agent-1"), []byte("FLSHPACK"), []byte("FLASHREF"), []byte("alpha")} {
			if bytes.Contains(m.objects[k].data, tells) || strings.Contains(k, string(tells)) {
				t.Errorf("%s tells of %q", k, tells)
			}
		}
	}
	for _, k := range m.keys("packs/") {
		m.damage(k, len(m.objects[k].data)/2)
	}
	if r, err := a.Check(ctx, 1, nil); err != nil || len(r.Findings) == 0 {
		t.Errorf("every pack is damaged, and the check finds %+v, %v", r.Findings, err)
	}
}
