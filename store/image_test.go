package store

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"flash/cas"
	"flash/store/manifest"
)

func TestImagesAreEqualAfterTheFirstTheTenthAndABranchedCheckpoint(t *testing.T) {
	s, m := newStore(t)
	newVM(t, s, "vm")
	rng := rand.New(rand.NewPCG(1, 2))
	have := delta{}
	states := map[int]delta{}
	var points []*Checkpoint
	step := func() {
		ch := delta{}
		for range 40 {
			slot := rng.Uint64N(memBytes / cas.SlotBytes)
			switch rng.IntN(4) {
			case 0:
				ch[slot] = make([]byte, cas.SlotBytes)
			case 1:
				ch[slot] = filled(0xcc)
			default:
				ch[slot] = page(rng.Uint64N(1 << 30))
			}
		}
		have = maps.Clone(have)
		maps.Copy(have, ch)
		c := checkpoint(t, s, "vm", memBytes, ch)
		states[c.Number] = have
		points = append(points, c)
	}
	for range 10 {
		step()
	}
	if err := s.MoveHead(context.Background(), "vm", 4, "rewind"); err != nil {
		t.Fatal(err)
	}
	have = states[4]
	step()
	if got := points[10]; got.Parent != 4 || got.Number != 11 {
		t.Fatalf("the branch is checkpoint %d with parent %d", got.Number, got.Parent)
	}
	for range 2 { // before and after all chunks have moved
		forget(s)
		for _, c := range points {
			mustHold(t, image(t, s, c.Snapshot, "mem"), states[c.Number])
		}
		m.Move()
	}
}

func TestEverySizeOfImageComesBack(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	rng := rand.NewChaCha8([32]byte{})
	for _, size := range []int{0, 1, 4095, 4096, 4097, 512 << 10, 512<<10 + 1, 1<<20 + 77} {
		p := make([]byte, size)
		rng.Read(p)
		txn, err := s.Begin(ctx, SnapshotID{})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := txn.PutBytes(ctx, "kernel", p)
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64(size+4095) / 4096; stats.Slots != want || stats.New != want {
			t.Fatalf("%d bytes: %+v", size, stats)
		}
		c, err := txn.Commit(ctx, Meta{Kind: "bundle"}, Move{Bundle: "b"})
		if err != nil {
			t.Fatal(err)
		}
		forget(s)
		im := image(t, s, c.Snapshot, "kernel")
		got, err := im.ReadAll(ctx)
		if err != nil || !bytes.Equal(got, p) || im.Bytes() != uint64(size) {
			t.Fatalf("%d bytes: %d came back, %v", size, len(got), err)
		}
	}
}

// sparse is a huge image with a page every so often.
type sparse struct{ slots, every uint64 }

func (p sparse) Slots() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for slot := uint64(0); slot < p.slots; slot += p.every {
			if !yield(slot) {
				return
			}
		}
	}
}

func (p sparse) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, page(slot))
	return nil
}

func TestATreeOfEveryHeightIsReadBack(t *testing.T) {
	ctx := context.Background()
	for _, size := range []uint64{1 << 20, 200 << 20, 40 << 30, 12 << 40, 1 << 48} {
		s, _ := newStore(t)
		newVM(t, s, "vm")
		ch := sparse{size / cas.SlotBytes, size / cas.SlotBytes / 50}
		c := checkpoint(t, s, "vm", size, ch)
		forget(s)
		im := image(t, s, c.Snapshot, "mem")
		got := make([]byte, cas.SlotBytes)
		slots := slices.Collect(ch.Slots())
		for _, slot := range slots {
			if err := im.ReadSlot(ctx, slot, got); err != nil || !bytes.Equal(got, page(slot)) {
				t.Fatalf("%d bytes, slot %d: %v", size, slot, err)
			}
			if zero, err := im.IsZero(ctx, min(slot+1, im.Slots()-2)); err != nil || !zero {
				t.Fatalf("%d bytes, slot %d isn't zero: %v", size, slot+1, err)
			}
		}
		seen := 0
		err := im.ReadSlots(ctx, slots, func(slot uint64, data []byte) error {
			seen++
			if !bytes.Equal(data, page(slot)) {
				t.Fatalf("%d bytes, slot %d", size, slot)
			}
			return nil
		})
		if err != nil || seen != len(slots) {
			t.Fatalf("%d of %d slots, %v", seen, len(slots), err)
		}
		c = checkpoint(t, s, "vm", size, delta{slots[7]: page(1), slots[8] + 1: page(2)})
		var differ []uint64
		for slot, err := range im.Diff(ctx, image(t, s, c.Snapshot, "mem")) {
			if err != nil {
				t.Fatal(err)
			}
			differ = append(differ, slot)
		}
		if !slices.Equal(differ, []uint64{slots[7], slots[8] + 1}) {
			t.Fatalf("%d bytes: slots %v differ", size, differ)
		}
	}
}

func TestReadsOutsideAnImageAreRefused(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	im := image(t, s, checkpoint(t, s, "vm", memBytes, delta{0: page(1)}).Snapshot, "mem")
	if im.ReadSlot(ctx, im.Slots(), make([]byte, 4096)) == nil || im.ReadSlot(ctx, 0, make([]byte, 4095)) == nil {
		t.Error("a slot outside, or half a slot, was read")
	}
	if err := im.ReadSlots(ctx, []uint64{im.Slots()}, func(uint64, []byte) error { return nil }); err == nil {
		t.Error("ReadSlots read a slot outside")
	}
	if _, err := im.IsZero(ctx, im.Slots()); err == nil {
		t.Error("a slot outside is or isn't zero")
	}
	other := image(t, s, checkpoint(t, s, "vm", 2*memBytes, delta{}).Snapshot, "mem")
	for _, err := range im.Diff(ctx, other) {
		if err == nil {
			t.Error("images of two lengths were compared")
		}
	}
}

func TestChangesOutOfOrderOrRangeAreRefused(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	for _, slots := range [][]uint64{{5, 5}, {5, 4}, {memBytes / cas.SlotBytes}} {
		txn, err := s.Begin(ctx, SnapshotID{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := txn.PutImage(ctx, ImageSpec{"mem", memBytes}, listed(slots)); err == nil {
			t.Errorf("slots %v were put", slots)
		}
		if _, err := txn.Commit(ctx, Meta{Kind: "bundle"}, Move{Bundle: "b"}); err == nil {
			t.Error("a transaction in which a put failed was committed")
		}
		txn.Abort()
	}
}

type listed []uint64

func (l listed) Slots() iter.Seq[uint64] { return slices.Values(l) }
func (l listed) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, page(slot))
	return nil
}

func TestStatsCountEverySlotOnce(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	first := checkpoint(t, s, "vm", memBytes, delta{0: page(1), 1: page(2), 2: filled(7), 200: page(3)})
	txn, err := s.Begin(ctx, first.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	stats, err := txn.PutImage(ctx, ImageSpec{"mem", memBytes}, delta{
		0: page(1),               // same
		1: make([]byte, 4096),    // zero
		2: filled(7),             // same
		3: filled(8),             // same-filled: known
		4: page(3),               // known
		5: page(4), 300: page(5), // new
		200: make([]byte, 4096), // zero
		201: make([]byte, 4096), // zero before and after
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Slots != 9 || stats.Zero != 3 || stats.Same != 2 || stats.Known != 2 || stats.New != 2 {
		t.Errorf("%+v", stats)
	}
	if stats.NewBytes == 0 || stats.NewChunks < 2+3 {
		t.Errorf("%+v: two pages and the nodes above them are new", stats.PutStats)
	}
}

func TestAnUnchangedCheckpointIsOnlyARecord(t *testing.T) {
	s, m := newStore(t)
	newVM(t, s, "vm")
	all := delta{}
	for slot := range uint64(memBytes / cas.SlotBytes) {
		all[slot] = page(slot)
	}
	put := func() *Checkpoint {
		t.Helper()
		ctx := context.Background()
		v, _ := s.VM(ctx, "vm")
		head, _ := s.Checkpoint(ctx, "vm", v.Head)
		txn, err := s.Begin(ctx, head.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		defer txn.Abort()
		if _, err := txn.PutImage(ctx, ImageSpec{"mem", memBytes}, all); err != nil {
			t.Fatal(err)
		}
		if err := txn.Keep("state"); err != nil {
			t.Fatal(err)
		}
		c, err := txn.Commit(ctx, Meta{Kind: "checkpoint"}, Move{VM: "vm", ExpectHead: v.Head})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	checkpoint(t, s, "vm", memBytes, all)
	for range 3 {
		before := m.Len()
		if c := put(); m.Len() != before+2 || c.NewBytes > 600 { // and a note
			t.Fatalf("%d new chunks, %d bytes", m.Len()-before, c.NewBytes)
		}
	}
}

func TestBytesThatGrowALittleShareTheirSlots(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	p := make([]byte, 600<<10)
	rand.NewChaCha8([32]byte{1}).Read(p)
	var parent SnapshotID
	put := func(p []byte) ImageStats {
		t.Helper()
		txn, err := s.Begin(ctx, parent)
		if err != nil {
			t.Fatal(err)
		}
		defer txn.Abort()
		stats, err := txn.PutBytes(ctx, "state", p)
		if err != nil {
			t.Fatal(err)
		}
		c, err := txn.Commit(ctx, Meta{Kind: "bundle"}, Move{Bundle: "b"})
		if err != nil {
			t.Fatal(err)
		}
		parent = c.Snapshot
		forget(s)
		if got, err := image(t, s, c.Snapshot, "state").ReadAll(ctx); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("other bytes came back, %v", err)
		}
		return stats
	}
	put(p)
	if stats := put(append(p[:len(p):len(p)], page(77)...)); stats.Same != 150 || stats.New != 1 || stats.NewChunks > 3 {
		t.Errorf("grown: %+v", stats)
	}
	if stats := put(p[:len(p)-100]); stats.Same != 149 || stats.New != 1 {
		t.Errorf("shrunk: %+v", stats)
	}
	if stats := put(p[:300<<10]); stats.Same != 75 || stats.New != 0 { // the root is a leaf now
		t.Errorf("halved: %+v", stats)
	}
}

func TestAFlippedBitIsRefused(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	for _, h := range func() []cas.Hash {
		checkpoint(t, s, "vm", memBytes, delta{0: page(1), 300: page(2)})
		return withoutNotes(t, m)
	}() {
		m.Corrupt(h)
		forget(s)
		err := func() error {
			c, err := s.Checkpoint(ctx, "vm", 1)
			if err != nil {
				return err
			}
			sn, err := s.Snapshot(ctx, c.Snapshot)
			if err != nil {
				return err
			}
			for _, spec := range sn.Images() {
				im, err := sn.Image(ctx, spec.Name)
				if err != nil {
					return err
				}
				if _, err := im.ReadAll(ctx); err != nil {
					return err
				}
			}
			return nil
		}()
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("chunk %s has a flipped bit: %v", h, err)
		}
		m.Corrupt(h) // back
	}
}

// A guest can write any bytes to a page, also those of a node; they must not be taken for one.
func TestAPageThatLooksLikeANodeIsAPage(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	first := checkpoint(t, s, "vm", memBytes, delta{0: page(1), 300: page(2)})
	ch := delta{}
	want := delta{0: page(1), 300: page(2)}
	for i, h := range m.Hashes() {
		p, err := m.Get(ctx, cas.Ref{Hash: h}, nil)
		if err != nil {
			t.Fatal(err)
		}
		full := make([]byte, cas.SlotBytes)
		copy(full, p)
		ch[uint64(10+i)], want[uint64(10+i)] = full, full
	}
	c := checkpoint(t, s, "vm", memBytes, ch)
	forget(s)
	mustHold(t, image(t, s, c.Snapshot, "mem"), want)
	mustHold(t, image(t, s, first.Snapshot, "mem"), delta{0: page(1), 300: page(2)})
}

func TestTheNodeCacheIsBounded(t *testing.T) {
	c := newNodeCache(16 * 10_000)
	n := &node{entries: make([]manifest.Entry, 40)} // 2,600 bytes: three a shard
	for i := range 1000 {
		c.add(cas.Hash{byte(i), byte(i >> 8), 1}, n)
	}
	for i := range c.shards {
		s := &c.shards[i]
		if len(s.items) != 3 || s.bytes != 3*n.bytes() {
			t.Errorf("shard %d has %d nodes, %d bytes", i, len(s.items), s.bytes)
		}
	}
	last := cas.Hash{byte(999 & 255), byte(999 >> 8), 1}
	if c.get(last) != n {
		t.Error("the last node added isn't there")
	}
}

func TestManyReadersShareAnImage(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t)
	newVM(t, s, "vm")
	want := delta{}
	for slot := range uint64(memBytes / cas.SlotBytes) {
		want[slot] = page(slot)
	}
	im := image(t, s, checkpoint(t, s, "vm", memBytes, want).Snapshot, "mem")
	s.nodes.cache = newNodeCache(16 * 20000) // two leaves a shard: eviction all the time
	var wg sync.WaitGroup
	for seed := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			got := make([]byte, cas.SlotBytes)
			for range 300 {
				slot := rng.Uint64N(im.Slots())
				if err := im.ReadSlot(ctx, slot, got); err != nil || !bytes.Equal(got, want[slot]) {
					t.Errorf("slot %d: %v", slot, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestReadingCostsTheSameHoweverLongTheHistory(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	newVM(t, s, "vm")
	checkpoint(t, s, "vm", memBytes, sparse{memBytes / cas.SlotBytes, 2})
	got := make([]byte, cas.SlotBytes)
	most := 0
	for i := range 60 {
		c := checkpoint(t, s, "vm", memBytes, delta{uint64(i * 3): page(uint64(1000 + i))})
		im := image(t, s, c.Snapshot, "mem")
		forget(s)
		before := m.Ops()
		if err := im.ReadSlot(ctx, 0, got); err != nil {
			t.Fatal(err)
		}
		most = max(most, m.Ops()-before)
	}
	if most > 2*2+1 {
		t.Errorf("a slot took %d reads; two levels and a page are at most 5", most)
	}
}

func TestNothingIsStoredBehindTheEndOfAnImage(t *testing.T) {
	s, _ := newStore(t)
	newVM(t, s, "vm")
	c := checkpoint(t, s, "vm", 2*cas.SlotBytes+100, delta{2: page(1)})
	mustHold(t, image(t, s, c.Snapshot, "mem"), delta{2: append(page(1)[:100:100], make([]byte, cas.SlotBytes-100)...)})
}

// One page more each time: patches grow until a full node is cheaper in the long run.
func TestPatchesDoNotGrowForEver(t *testing.T) {
	s, _ := newStore(t)
	newVM(t, s, "vm")
	first := delta{}
	for slot := range uint64(manifest.LeafEntries) {
		first[slot] = page(slot)
	}
	checkpoint(t, s, "vm", 1<<19, first)
	sum := int64(0)
	for i := range uint64(120) {
		c := checkpoint(t, s, "vm", 1<<19, delta{i * 37 % manifest.LeafEntries: page(1000 + i)})
		sum += c.NewBytes - 2*cas.SlotBytes // the other is the state
	}
	if sum/120 > 1600 {
		t.Errorf("%d bytes of metadata a checkpoint of one page", sum/120)
	}
}

func TestFilledPagesNeedNoChunk(t *testing.T) {
	s, m := newStore(t)
	newVM(t, s, "vm")
	before := m.Len()
	c := checkpoint(t, s, "vm", 1<<19, delta{3: filled(0xcc), 4: bytes.Repeat([]byte("abcdefgh"), 512)})
	if n := m.Len() - before; n != 2+3 { // a leaf, the state's page and leaf, the record, the note
		t.Errorf("%d chunks", n)
	}
	forget(s)
	mustHold(t, image(t, s, c.Snapshot, "mem"), delta{3: filled(0xcc), 4: bytes.Repeat([]byte("abcdefgh"), 512)})
}

// Trees come from elsewhere too, so what PutImage never writes must be refused and not followed.
func TestImpossibleTreesAreRefused(t *testing.T) {
	ctx := context.Background()
	s, m := newStore(t)
	put := func(kind cas.Kind, p []byte, named int) cas.Ref {
		t.Helper()
		c := cas.Chunk{Hash: m.Hasher().Sum(p[:named]), Kind: kind, Named: named, Data: p}
		if _, err := m.Put(ctx, []cas.Chunk{c}, nil); err != nil {
			t.Fatal(err)
		}
		return cas.Ref{Hash: c.Hash}
	}
	node := func(p []byte, named int) cas.Ref { t.Helper(); return put(cas.KindNode, p, named) }
	leafOf := func(slot0 manifest.Entry) []manifest.Entry {
		entries := make([]manifest.Entry, manifest.LeafEntries)
		entries[0] = slot0
		return entries
	}
	data := manifest.ChunkEntry(put(cas.KindData, page(1), cas.SlotBytes))
	full := node(manifest.AppendFull(nil, 0, leafOf(data)))
	patch := node(manifest.AppendPatch(nil, 0, full, []uint8{1}, []manifest.Entry{data}))
	inner := make([]manifest.Entry, manifest.InnerEntries)
	inner[0] = manifest.ChunkEntry(full)
	for name, root := range map[string]cas.Ref{
		"a patch of a patch":          node(manifest.AppendPatch(nil, 0, patch, []uint8{2}, []manifest.Entry{data})),
		"a patch of an inner node":    node(manifest.AppendPatch(nil, 0, node(manifest.AppendFull(nil, 1, inner)), []uint8{2}, []manifest.Entry{data})),
		"a page for a root":           data.Ref(),
		"a leaf for an inner node":    full,
		"an inner node for a leaf":    node(manifest.AppendFull(nil, 1, inner)),
		"a node for a page":           node(manifest.AppendFull(nil, 0, leafOf(manifest.ChunkEntry(full)))),
		"a patch of what isn't there": node(manifest.AppendPatch(nil, 0, cas.Ref{Hash: cas.Hash{9}}, []uint8{2}, []manifest.Entry{data})),
	} {
		want := ErrFormat
		if name == "a patch of what isn't there" {
			want = cas.ErrNotFound
		}
		for _, warm := range []bool{false, true} {
			forget(s)
			if warm { // the parts are in the cache, each rightly read in another place
				s.nodes.node(ctx, patch, 0)
				s.nodes.node(ctx, root, 1)
				s.nodes.node(ctx, full, 0)
			}
			im := s.image(manifest.Image{Name: "mem", Bytes: manifest.LeafEntries * cas.SlotBytes, Root: root})
			slot := uint64(0)
			if name == "a leaf for an inner node" { // and a child that a leaf has no entry for
				im = s.image(manifest.Image{Name: "mem", Bytes: 128 << 20, Root: root})
				slot = im.Slots() - 1
			}
			if err := im.ReadSlot(ctx, slot, make([]byte, cas.SlotBytes)); !errors.Is(err, want) {
				t.Errorf("%s, warm %v: ReadSlot: %v", name, warm, err)
			}
			if !warm {
				forget(s)
			}
			if _, err := im.ReadAll(ctx); !errors.Is(err, want) {
				t.Errorf("%s, warm %v: ReadAll: %v", name, warm, err)
			}
		}
	}
}
