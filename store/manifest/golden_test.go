package manifest

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas"
)

var update = flag.Bool("update", false, "rewrite the golden files; a change of format needs a new version")

func hashOf(b byte) (h cas.Hash) {
	for i := range h {
		h[i] = b + byte(i)
	}
	return h
}

func packOf(b byte) (id cas.PackID) { id[0], id[15] = b, b; return id }

func refOf(b byte, offset, bytes uint32) cas.Ref {
	return cas.Ref{Hash: hashOf(b), Hint: cas.Hint{Pack: packOf(b & 3), Offset: offset, Bytes: bytes}}
}

// sparseLeaf holds every kind of entry: near, far and unknown hints, a pattern, zeros.
func sparseLeaf() []Entry {
	e := make([]Entry, LeafEntries)
	e[0] = ChunkEntry(refOf(4, 100, 50))
	e[1] = ChunkEntry(refOf(8, 150, 60)) // same pack, right behind
	e[2] = SameEntry([8]byte{0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc})
	e[3] = ChunkEntry(cas.Ref{Hash: hashOf(9)})
	e[127] = ChunkEntry(refOf(1, 1<<31, 4100))
	return e
}

func patchParts() (base cas.Ref, index []uint8, entries []Entry) {
	return refOf(7, 9, 9000), []uint8{0, 5, 127}, []Entry{{}, ChunkEntry(refOf(2, 0, 77)), SameEntry([8]byte{1})}
}

func inner() []Entry {
	e := make([]Entry, InnerEntries)
	e[3], e[255] = ChunkEntry(refOf(4, 1, 2)), ChunkEntry(refOf(5, 3, 4))
	return e
}

func record() *Snapshot {
	return &Snapshot{
		Parent: hashOf(40), Kind: Checkpoint, Created: time.Unix(1700000000, 123456789).UTC(),
		Facts: map[string]string{"engine": "qemu", "cpu": "max", "empty": ""},
		Images: []Image{{Name: "disk0", Bytes: 1 << 30, Root: refOf(1, 2, 3)}, {Name: "mem", Bytes: 512 << 20},
			{Name: "state", Bytes: 12345, Root: refOf(5, 6, 7)}},
	}
}

func encodings(t *testing.T) map[string][]byte {
	t.Helper()
	full, _ := AppendFull(nil, 0, sparseLeaf())
	base, index, entries := patchParts()
	patch, _ := AppendPatch(nil, 0, base, index, entries)
	in, _ := AppendFull(nil, 2, inner())
	snapshot, _, err := record().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"leaf": full, "patch": patch, "inner": in, "snapshot": snapshot}
}

// A file of version 1 that exists must stay readable, so its bytes may not change.
func TestFormatIsTheGoldenOne(t *testing.T) {
	golden := encodings(t)
	golden["history"] = encoded(t, history())
	for name, n := range notes() {
		golden[name] = noted(t, n)
	}
	for name, p := range golden {
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(hex.Dump(p)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.Dump(p); got != strings.ReplaceAll(string(want), "\r\n", "\n") {
			t.Errorf("%s: encoded\n%s, the golden file has\n%s", name, got, want)
		}
	}
}

func FuzzDecodeNode(f *testing.F) {
	full, _ := AppendFull(nil, 0, sparseLeaf())
	base, index, entries := patchParts()
	patch, _ := AppendPatch(nil, 0, base, index, entries)
	in, _ := AppendFull(nil, 2, inner())
	f.Add(full, 0)
	f.Add(patch, 0)
	f.Add(in, 2)
	f.Fuzz(func(t *testing.T, p []byte, level int) {
		n, err := DecodeNode(p, level)
		if err != nil {
			return
		}
		var again []byte
		var named int
		if n.IsPatch() {
			again, named = AppendPatch(nil, level, n.Base, n.Index, n.Entries)
		} else {
			again, named = AppendFull(nil, level, n.Entries)
		}
		// The annotation may be said in several ways; the canonical part only in one.
		if len(p) < named || !bytes.Equal(again[:named], p[:named]) {
			t.Fatalf("decoded %x\nencoded %x", p, again[:named])
		}
		if named == cas.SlotBytes {
			t.Fatal("a node as long as a page")
		}
		if _, err := DecodeNode(again, level); err != nil {
			t.Fatalf("what was encoded is refused: %v", err)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	p, _, err := record().Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := DecodeSnapshot(p)
		if err != nil {
			return
		}
		again, named, err := s.Append(nil)
		if err != nil {
			t.Fatalf("what was decoded is refused: %v", err)
		}
		if len(p) < named || !bytes.Equal(again[:named], p[:named]) {
			t.Fatalf("decoded %x\nencoded %x", p, again[:named])
		}
	})
}
