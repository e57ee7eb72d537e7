package manifest

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"flash/cas"
)

func aBundle(name string) NamedBundle {
	return NamedBundle{Name: name, Snapshot: hashOf(60), Created: time.Unix(1700000000, 1).UTC()}
}

func notes() map[string]*Note {
	all := map[string]*Note{
		"note-vm":             {Kind: NoteVM, Sequence: 5, History: history()},
		"note-vm-removed":     {Kind: NoteVMRemoved, Sequence: 6, Name: "agent-1"},
		"note-bundle":         {Kind: NoteBundle, Sequence: 7, Bundle: aBundle("debian")},
		"note-bundle-removed": {Kind: NoteBundleRemoved, Sequence: 8, Name: "debian"},
		"note-catalogue": {Kind: NoteCatalogue, Sequence: 9, Part: CataloguePart{Covers: 7, Part: 1, Parts: 2,
			VMs: [][]cas.Hash{{hashOf(1), hashOf(2)}, {hashOf(3)}}, Bundles: []NamedBundle{aBundle("a"), aBundle("b")}}},
	}
	for _, n := range all {
		n.Store, n.Written = storeOf(1), time.Unix(1700000000, 9).UTC()
	}
	return all
}

func storeOf(b byte) (id StoreID) { id[3] = b; return id }

func noted(t testing.TB, n *Note) []byte {
	t.Helper()
	p, err := n.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNotesComeBackWholeOrAreRefused(t *testing.T) {
	for name, n := range notes() {
		p := noted(t, n)
		if got, err := DecodeNote(p); err != nil || !reflect.DeepEqual(got, n) {
			t.Fatalf("%s: %v\n%+v\nwant\n%+v", name, err, got, n)
		}
		for cut := range len(p) {
			if _, err := DecodeNote(p[:cut]); !errors.Is(err, ErrFormat) {
				t.Fatalf("the first %d bytes of %s: %v", cut, name, err)
			}
		}
		if _, err := DecodeNote(append(p, 0)); !errors.Is(err, ErrFormat) {
			t.Fatalf("%s with a byte behind it: %v", name, err)
		}
	}
	for i, n := range []*Note{{Kind: NoteVMRemoved, Sequence: 1, Name: "a"}, {Kind: NoteVMRemoved, Name: "a"}, {Kind: NoteVMRemoved, Sequence: 1}, {Kind: NoteBundle, Sequence: 1},
		{Kind: NoteCatalogue, Sequence: 1}, {Kind: 6, Sequence: 1}, {Kind: NoteVM, Sequence: 1, History: &History{}}} {
		if i > 0 { // all but what the case is about
			n.Written, n.Store = time.Unix(1, 0), storeOf(1)
		}
		if _, err := n.Append(nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%d was encoded: %v", i, err)
		}
	}
}

// A guest that writes a page can't write a note.
func TestNoNoteIsAsLongAsAPage(t *testing.T) {
	h := history()
	for size := 3000; size < 4200; size++ {
		h.Checkpoints[0].Label = strings.Repeat("x", size)
		n := &Note{Kind: NoteVM, Sequence: 1, History: h, Store: storeOf(1), Written: time.Unix(9, 0).UTC()}
		p := noted(t, n)
		if len(p) == cas.SlotBytes {
			t.Fatal("it is")
		}
		if got, err := DecodeNote(p); err != nil || !reflect.DeepEqual(got, n) {
			t.Fatalf("%d bytes: %v", len(p), err)
		}
	}
}

func TestAHistoryInPiecesIsThatHistory(t *testing.T) {
	for _, size := range []int{1, PieceBytes - 1, PieceBytes, PieceBytes + 1, 3 * PieceBytes} {
		p := bytes.Repeat([]byte{1, 2, 3}, size)[:size]
		pieces := Pieces(p)
		got, err := JoinPieces(pieces)
		if err != nil || !bytes.Equal(got, p) || len(pieces) != (size+PieceBytes-1)/PieceBytes {
			t.Fatalf("%d bytes in %d pieces: %v", size, len(pieces), err)
		}
		pieces[0][0] = 'H'
		if _, err := JoinPieces(pieces); !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	}
}

// script is a store's life as its notes tell it.
type script struct {
	notes  []*Note
	pieces map[cas.Hash][]byte
	next   uint64
}

func (s *script) add(n *Note) {
	s.next++
	n.Sequence = s.next
	s.notes = append(s.notes, n)
}

func (s *script) vm(name string, head, next int, checkpoints ...NamedSnapshot) {
	s.add(&Note{Kind: NoteVM, History: &History{VM: name, Created: time.Unix(1, 0).UTC(), Head: head, Next: next, Checkpoints: checkpoints}})
}

func point(number, parent int, snapshot byte) NamedSnapshot {
	return NamedSnapshot{Number: number, Parent: parent, Snapshot: hashOf(snapshot), Created: time.Unix(int64(number)+1, 0).UTC()}
}

// catalogue names the histories, as two parts.
func (s *script) catalogue(covers uint64, histories ...*History) {
	s.next++
	for part := range 2 {
		n := &Note{Kind: NoteCatalogue, Sequence: s.next, Part: CataloguePart{Covers: covers, Part: part, Parts: 2}}
		for i, h := range histories {
			if i%2 != part {
				continue
			}
			p, err := h.Append(nil)
			if err != nil {
				panic(err)
			}
			var hashes []cas.Hash
			for _, piece := range Pieces(p) {
				hash := hashOf(byte(len(s.pieces) + 100))
				s.pieces[hash] = piece
				hashes = append(hashes, hash)
			}
			n.Part.VMs = append(n.Part.VMs, hashes)
		}
		s.notes = append(s.notes, n)
	}
}

func (s *script) names() *Names {
	return Assemble(s.notes, func(h cas.Hash) ([]byte, error) {
		if p, ok := s.pieces[h]; ok {
			return p, nil
		}
		return nil, cas.ErrNotFound
	})
}

func TestNotesAreAppliedOverTheNewestWholeCatalogue(t *testing.T) {
	s := &script{pieces: map[cas.Hash][]byte{}}
	s.vm("gone", NoCheckpoint, 1)              // 1, removed before the catalogue
	s.vm("a", 1, 2, point(1, NoCheckpoint, 1)) // 2
	s.vm("a", 2, 3, point(2, 1, 2))            // 3: the catalogue was begun before it was committed
	pinned := point(1, NoCheckpoint, 1)
	pinned.Pinned = true
	second := point(2, 1, 2)
	second.Label = "as the catalogue has it"
	s.catalogue(2, &History{VM: "a", Created: time.Unix(1, 0).UTC(), Head: 1, Next: 3, Checkpoints: []NamedSnapshot{pinned, second}}, // rewound since
		&History{VM: "b", Created: time.Unix(1, 0).UTC(), Head: NoCheckpoint, Next: 1})
	s.vm("a", 3, 4, point(3, 1, 9)) // never committed
	s.vm("a", 3, 4, point(3, 1, 3))
	s.add(&Note{Kind: NoteVMRemoved, Name: "b"})
	s.vm("b", NoCheckpoint, 1)
	s.notes[len(s.notes)-1].History.Created = time.Unix(2, 0).UTC()
	s.add(&Note{Kind: NoteBundle, Bundle: aBundle("x")})
	s.add(&Note{Kind: NoteBundle, Bundle: aBundle("y")})
	s.add(&Note{Kind: NoteBundleRemoved, Name: "x"})
	// A later catalogue that isn't whole counts for nothing.
	s.catalogue(s.next)
	s.notes = s.notes[:len(s.notes)-1]
	for i, j := 0, len(s.notes)-1; i < j; i, j = i+1, j-1 { // in whatever order they are found
		s.notes[i], s.notes[j] = s.notes[j], s.notes[i]
	}
	n := s.names()
	if len(n.Lost) != 0 || len(n.VMs) != 2 || len(n.Bundles) != 1 || n.Bundles[0].Name != "y" {
		t.Fatalf("%+v", n)
	}
	a, b := n.VMs[0], n.VMs[1]
	want := []NamedSnapshot{pinned, second, point(3, 1, 3)}
	if a.Head != 3 || a.Next != 4 || !reflect.DeepEqual(a.Checkpoints, want) {
		t.Errorf("%+v\nwant %+v", a, want)
	}
	if b.VM != "b" || b.Created.Unix() != 2 {
		t.Errorf("%+v", b)
	}
}

func TestALostPieceCostsItsHistoryOnly(t *testing.T) {
	s := &script{pieces: map[cas.Hash][]byte{}}
	one := func(name string) *History {
		return &History{VM: name, Created: time.Unix(1, 0).UTC(), Head: 1, Next: 2, Checkpoints: []NamedSnapshot{point(1, NoCheckpoint, 1)}}
	}
	s.catalogue(0, one("a"), one("b"))
	s.vm("a", 2, 3, point(2, 1, 2))
	delete(s.pieces, hashOf(100))
	n := s.names()
	if len(n.Lost) != 1 || !errors.Is(n.Lost[0], cas.ErrNotFound) || len(n.VMs) != 2 {
		t.Fatalf("%+v", n)
	}
	if a := n.VMs[0]; a.VM != "a" || len(a.Checkpoints) != 1 || a.Checkpoints[0].Number != 2 {
		t.Errorf("%+v", a)
	}
}

func TestWhatStaysOfAHistoryIsATree(t *testing.T) {
	h := &History{VM: "a", Created: time.Unix(1, 0).UTC(), Head: 5, Next: 6, Checkpoints: []NamedSnapshot{
		point(1, NoCheckpoint, 1), point(2, 1, 2), point(3, 2, 3), point(4, 2, 4), point(5, 3, 5)}}
	lost := map[int]bool{2: true, 3: true, 5: true}
	gone := h.Keep(func(c *NamedSnapshot) bool { return !lost[c.Number] })
	if len(gone) != 3 || h.Head != 1 || len(h.Checkpoints) != 2 || h.Checkpoints[1].Parent != 1 {
		t.Fatalf("%+v", h)
	}
	h.Head = 4
	h.Keep(func(c *NamedSnapshot) bool { return c.Number == 1 })
	if h.Head != 1 {
		t.Fatalf("%+v", h)
	}
	h.Keep(func(*NamedSnapshot) bool { return false })
	if h.Head != NoCheckpoint || len(h.Checkpoints) != 0 {
		t.Fatalf("%+v", h)
	}
}

func FuzzDecodeNote(f *testing.F) {
	for _, n := range notes() {
		f.Add(noted(f, n))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		n, err := DecodeNote(p)
		if err != nil {
			return
		}
		again, err := n.Append(nil)
		if err != nil || !bytes.Equal(again, p) {
			t.Fatalf("%v: decoded %x\nencoded %x", err, p, again)
		}
	})
}

func TestNotesOfTheStoreThatWroteLastAreTaken(t *testing.T) {
	at := func(seconds int64, store byte) *Note {
		return &Note{Written: time.Unix(seconds, 0), Store: storeOf(store)}
	}
	of, stores := NotesOf([]*Note{at(5, 1), at(9, 2), at(3, 2), at(7, 1), at(4, 3)})
	if stores != 3 || len(of) != 2 || of[0].Store != storeOf(2) {
		t.Fatalf("%d of %d stores: %+v", len(of), stores, of)
	}
	if of, stores := NotesOf(nil); len(of) != 0 || stores != 0 {
		t.Fatal(of, stores)
	}
}
