package manifest

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"flash/cas"
)

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	for _, level := range []int{0, 1, 4} {
		entries := sparseLeaf()
		if level > 0 {
			entries = inner()
		}
		p, named := AppendFull([]byte("before"), level, entries)
		n, err := DecodeNode(p[6:], level)
		if err != nil || n.IsPatch() || !slices.Equal(n.Entries, entries) {
			t.Fatalf("level %d: %v, %+v", level, err, n)
		}
		n, err = DecodeNode(p[6:6+named], level)
		if err != nil || !n.Entries[3].Hint.IsZero() || n.Entries[3].Hash != entries[3].Hash {
			t.Fatalf("level %d without an annotation: %v, %+v", level, err, n)
		}
	}
	base, index, entries := patchParts()
	p, _ := AppendPatch(nil, 0, base, index, entries)
	n, err := DecodeNode(p, 0)
	if err != nil || n.Base != base || !slices.Equal(n.Index, index) || !slices.Equal(n.Entries, entries) {
		t.Fatalf("patch: %v, %+v", err, n)
	}
	p, _, err = record().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := DecodeSnapshot(p); err != nil || !reflect.DeepEqual(s, record()) {
		t.Fatalf("snapshot: %v, %+v", err, s)
	}
}

func TestMovingChunksChangesNoNames(t *testing.T) {
	here, there := sparseLeaf(), sparseLeaf()
	for i := range there {
		there[i].Hint = cas.Hint{}
	}
	a, n := AppendFull(nil, 0, here)
	b, m := AppendFull(nil, 0, there)
	if n != m || string(a[:n]) != string(b[:m]) || len(a) == n || len(b) != m {
		t.Fatalf("canonical parts of %d and %d bytes differ", n, m)
	}
}

func TestPatchOverItsBaseIsTheNode(t *testing.T) {
	base := &Node{Entries: sparseLeaf()}
	ref, index, entries := patchParts()
	p := &Node{Base: ref, Index: index, Entries: entries}
	got, err := p.Over(base)
	if err != nil {
		t.Fatal(err)
	}
	want := sparseLeaf()
	for i, at := range index {
		want[at] = entries[i]
	}
	if !slices.Equal(got, want) || !slices.Equal(base.Entries, sparseLeaf()) {
		t.Fatal("the patch was applied wrongly, or to the base itself")
	}
	if _, err := p.Over(p); !errors.Is(err, ErrFormat) {
		t.Fatalf("a patch of a patch: %v", err)
	}
	if _, err := p.Over(&Node{Level: 1, Entries: inner()}); !errors.Is(err, ErrFormat) {
		t.Fatalf("a base of another level: %v", err)
	}
}

// Every proper prefix and any byte appended is refused, and so is each of the ways to say a thing twice.
func TestDamagedEncodingsAreRefused(t *testing.T) {
	decode := map[string]func([]byte) error{
		"leaf":     func(p []byte) error { _, err := DecodeNode(p, 0); return err },
		"patch":    func(p []byte) error { _, err := DecodeNode(p, 0); return err },
		"inner":    func(p []byte) error { _, err := DecodeNode(p, 2); return err },
		"snapshot": func(p []byte) error { _, err := DecodeSnapshot(p); return err },
	}
	for name, p := range encodings(t) {
		refused := 0
		for cut := range len(p) {
			if err := decode[name](p[:cut]); errors.Is(err, ErrFormat) {
				refused++
			}
		}
		// Only the cut just before the annotation is a whole encoding.
		if refused != len(p)-1 {
			t.Errorf("%s: %d of %d prefixes refused", name, refused, len(p))
		}
		if err := decode[name](append(p, 0)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s with a byte behind it: %v", name, err)
		}
	}
	change := func(name string, at int, b byte) {
		t.Helper()
		p := encodings(t)[name]
		p[at] = b
		if err := decode[name](p); !errors.Is(err, ErrFormat) {
			t.Errorf("%s with %#x at %d: %v", name, b, at, err)
		}
	}
	for _, name := range []string{"leaf", "patch", "inner", "snapshot"} {
		change(name, 0, 'X')
		change(name, 1, 0)
		change(name, 1, 2)
		change(name, 2, 0)
		change(name, 2, 3)
		change(name, 3, 3)
	}
	change("leaf", 4, 0xff)      // tag 3
	change("inner", 4, 0x01)     // a pattern in an inner node
	change("patch", 36, 0)       // no entries
	change("patch", 37, 0xff)    // far too many
	change("patch", 40, 0)       // index 0 twice
	change("patch", 38, 200)     // out of range
	change("snapshot", 45, 0xff) // too many facts
	if _, err := DecodeNode(encodings(t)["leaf"], 1); !errors.Is(err, ErrFormat) {
		t.Errorf("a leaf where an inner node must be: %v", err)
	}
	empty := slices.Concat([]byte{magicNode, Version, formFull, 0}, make([]byte, 32))
	if _, err := DecodeNode(empty, 0); !errors.Is(err, ErrFormat) {
		t.Errorf("a full node of zeros: %v", err)
	}
}

func TestRecordWithoutKindOrOutOfOrderIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Snapshot){
		"no kind":          func(s *Snapshot) { s.Kind = 0 },
		"unknown kind":     func(s *Snapshot) { s.Kind = 9 },
		"no time":          func(s *Snapshot) { s.Created = s.Created.AddDate(-1e6, 0, 0) },
		"image twice":      func(s *Snapshot) { s.Images[1].Name = "disk0" },
		"images unsorted":  func(s *Snapshot) { s.Images[0].Name = "z" },
		"nameless image":   func(s *Snapshot) { s.Images[0].Name = "" },
		"endless image":    func(s *Snapshot) { s.Images[0].Bytes = MaxImageBytes + 1 },
		"nameless fact":    func(s *Snapshot) { s.Facts[""] = "x" },
		"fact of 64 KiB":   func(s *Snapshot) { s.Facts["x"] = string(make([]byte, 1<<16)) },
		"too many images":  func(s *Snapshot) { s.Images = make([]Image, MaxImages+1) },
		"name of 65 bytes": func(s *Snapshot) { s.Images[2].Name = string(slices.Repeat([]byte("z"), 65)) },
	} {
		s := record()
		spoil(s)
		if _, _, err := s.Append(nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseKind(""); !errors.Is(err, ErrFormat) {
		t.Errorf("kind \"\": %v", err)
	}
}

// A guest chooses what its pages hold; a page that is a node would let it choose what another reads.
func TestNoNodeOrRecordIsAsLongAsAPage(t *testing.T) {
	// 36 B + 126·32 B + 3·8 B + … : try every mix of chunks and patterns.
	seen := false
	for chunks := 120; chunks <= LeafEntries; chunks++ {
		for same := 0; same <= LeafEntries-chunks; same++ {
			e := make([]Entry, LeafEntries)
			for i := range chunks {
				e[i] = ChunkEntry(cas.Ref{Hash: hashOf(byte(i + 1))})
			}
			for i := range same {
				e[chunks+i] = SameEntry([8]byte{1})
			}
			p, named := AppendFull(nil, 0, e)
			if named == cas.SlotBytes {
				t.Fatalf("%d chunks and %d patterns: a node as long as a page", chunks, same)
			}
			seen = seen || named == cas.SlotBytes+1
			if _, err := DecodeNode(p, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := record()
	for n := 0; n < 5000; n++ {
		s.Facts["pad"] = string(make([]byte, n%MaxValueBytes))
		s.Facts["pad2"] = string(make([]byte, min(n/MaxValueBytes, 1)*MaxValueBytes))
		s.Facts["pad3"] = string(make([]byte, min(n/MaxValueBytes/2, 1)*MaxValueBytes))
		s.Facts["pad4"] = string(make([]byte, min(n/MaxValueBytes/3, 1)*MaxValueBytes))
		p, named, err := s.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if named == cas.SlotBytes {
			t.Fatal("a record as long as a page")
		}
		if named == cas.SlotBytes+1 {
			seen = true
			if got, err := DecodeSnapshot(p); err != nil || got.Facts["pad"] != s.Facts["pad"] {
				t.Fatalf("padded record: %v", err)
			}
		}
	}
	if !seen {
		t.Fatal("no padded encoding was tried")
	}
}

func TestRandomNodesSurviveARoundTrip(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		level := rng.IntN(MaxLevel + 1)
		e := make([]Entry, EntryCount(level))
		e[0] = ChunkEntry(refOf(1, 2, 3))
		for i := range e {
			switch rng.IntN(4) {
			case 0:
				e[i] = ChunkEntry(refOf(byte(rng.IntN(255)+1), rng.Uint32(), rng.Uint32N(5000)))
			case 1:
				e[i] = ChunkEntry(cas.Ref{Hash: hashOf(byte(rng.IntN(255) + 1))})
			case 2:
				if level == 0 {
					e[i] = SameEntry([8]byte{byte(rng.IntN(255) + 1)})
				}
			}
		}
		p, _ := AppendFull(nil, level, e)
		n, err := DecodeNode(p, level)
		if err != nil || !slices.Equal(n.Entries, e) {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
	}
}

func TestShapeFollowsFromTheNumberOfSlots(t *testing.T) {
	for _, c := range []struct {
		bytes, slots uint64
		level        int
	}{
		{0, 0, 0}, {1, 1, 0}, {4096, 1, 0}, {4097, 2, 0}, {512 << 10, 128, 0}, {512<<10 + 1, 129, 1},
		{128 << 20, 1 << 15, 1}, {128<<20 + 1, 1<<15 + 1, 2}, {32 << 30, 1 << 23, 2}, {MaxImageBytes, 1 << 36, 4},
	} {
		if s := SlotCount(c.bytes); s != c.slots || RootLevel(s) != c.level {
			t.Errorf("%d bytes: %d slots, root level %d; want %d, %d", c.bytes, s, RootLevel(s), c.slots, c.level)
		}
	}
}
