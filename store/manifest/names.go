package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"flash/cas"
)

// Names is what there was, as far as notes tell.
type Names struct {
	VMs     []*History // by name
	Bundles []NamedBundle
	Lost    []error // histories of the catalogue that can't be read; their later notes are used
}

// NotesOf gives the notes of the store that wrote the newest one, and how many stores have any: packs that came from
// elsewhere may hold notes of theirs.
func NotesOf(notes []*Note) (of []*Note, stores int) {
	newest := map[StoreID]time.Time{}
	var id StoreID
	for _, n := range notes {
		if n.Written.After(newest[n.Store]) {
			newest[n.Store] = n.Written
		}
		if newest[n.Store].After(newest[id]) {
			id = n.Store
		}
	}
	for _, n := range notes {
		if n.Store == id {
			of = append(of, n)
		}
	}
	return of, len(newest)
}

// Assemble puts the notes of one store together, in whatever order they were found: the newest catalogue that is whole, and
// what the notes since then say. piece gives the bytes of a piece that a catalogue names.
//
// A note may tell of what was never committed, for it is written before; and what has no note, such as a pin, is as it was
// when the catalogue was written.
func Assemble(notes []*Note, piece func(cas.Hash) ([]byte, error)) *Names {
	a := assembly{vms: map[string]*History{}, bundles: map[string]NamedBundle{}}
	covers := a.catalogue(newestCatalogue(notes), piece)
	notes = slices.Clone(notes)
	slices.SortStableFunc(notes, func(x, y *Note) int { return cmp.Compare(x.Sequence, y.Sequence) })
	for _, n := range notes {
		if n.Sequence > covers {
			a.apply(n)
		}
	}
	out := &Names{Lost: a.lost}
	for _, h := range a.vms {
		out.VMs = append(out.VMs, h)
	}
	for _, b := range a.bundles {
		out.Bundles = append(out.Bundles, b)
	}
	slices.SortFunc(out.VMs, func(x, y *History) int { return strings.Compare(x.VM, y.VM) })
	slices.SortFunc(out.Bundles, func(x, y NamedBundle) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// newestCatalogue gives the parts of the newest catalogue all of whose parts are there; none if there is no such.
func newestCatalogue(notes []*Note) []*Note {
	parts := map[uint64]map[int]*Note{}
	for _, n := range notes {
		if n.Kind == NoteCatalogue {
			if parts[n.Sequence] == nil {
				parts[n.Sequence] = map[int]*Note{}
			}
			parts[n.Sequence][n.Part.Part] = n
		}
	}
	newest := uint64(0)
	for sequence, of := range parts {
		for _, n := range of {
			if len(of) == n.Part.Parts && sequence > newest {
				newest = sequence
			}
		}
	}
	var all []*Note
	for _, n := range parts[newest] {
		all = append(all, n)
	}
	return all
}

type assembly struct {
	vms     map[string]*History
	bundles map[string]NamedBundle
	lost    []error
}

func (a *assembly) catalogue(parts []*Note, piece func(cas.Hash) ([]byte, error)) (covers uint64) {
	for _, n := range parts {
		covers = n.Part.Covers
		for _, b := range n.Part.Bundles {
			a.bundles[b.Name] = b
		}
		for _, hashes := range n.Part.VMs {
			h, err := join(hashes, piece)
			if err != nil {
				a.lost = append(a.lost, err)
				continue
			}
			a.vms[h.VM] = h
		}
	}
	return covers
}

func join(hashes []cas.Hash, piece func(cas.Hash) ([]byte, error)) (*History, error) {
	var pieces [][]byte
	for _, hash := range hashes {
		p, err := piece(hash)
		if err != nil {
			return nil, fmt.Errorf("piece %s of a history: %w", hash, err)
		}
		pieces = append(pieces, p)
	}
	p, err := JoinPieces(pieces)
	if err != nil {
		return nil, err
	}
	return DecodeHistory(p)
}

// apply makes of what is known what it was after the note. What the catalogue has already stays as that has it.
func (a *assembly) apply(n *Note) {
	switch n.Kind {
	case NoteVMRemoved:
		delete(a.vms, n.Name)
	case NoteBundle:
		a.bundles[n.Bundle.Name] = n.Bundle
	case NoteBundleRemoved:
		delete(a.bundles, n.Name)
	case NoteVM:
		h := a.vms[n.History.VM]
		if h == nil || !h.Created.Equal(n.History.Created) { // another one of that name
			fresh := *n.History
			fresh.Checkpoints = slices.Clone(fresh.Checkpoints)
			a.vms[fresh.VM] = &fresh
			return
		}
		h.merge(n.History)
	}
}

// merge adds the checkpoints of a note that aren't there.
func (h *History) merge(note *History) {
	for _, c := range note.Checkpoints {
		i, found := slices.BinarySearchFunc(h.Checkpoints, c.Number, func(x NamedSnapshot, number int) int { return cmp.Compare(x.Number, number) })
		switch {
		case found && h.Checkpoints[i].Snapshot == c.Snapshot:
			continue
		case found: // the older one was never committed
			h.Checkpoints[i] = c
		default:
			h.Checkpoints = slices.Insert(h.Checkpoints, i, c)
		}
		h.Head, h.Next, h.Spec = note.Head, max(h.Next, note.Next), note.Spec
	}
}

// Keep leaves only the checkpoints that may stay. Children of one that goes hang on its nearest ancestor that stays, and
// so does the head; a head without one becomes the newest that is left.
func (h *History) Keep(stays func(*NamedSnapshot) bool) (gone []NamedSnapshot) {
	parent := map[int]int{}
	kept := map[int]bool{}
	var all []NamedSnapshot
	for _, c := range h.Checkpoints {
		parent[c.Number] = c.Parent
		if stays(&c) {
			kept[c.Number] = true
			all = append(all, c)
		} else {
			gone = append(gone, c)
		}
	}
	nearest := func(n int) int {
		for n != NoCheckpoint && !kept[n] {
			up, known := parent[n]
			if !known {
				return NoCheckpoint
			}
			n = up
		}
		return n
	}
	for i := range all {
		all[i].Parent = nearest(all[i].Parent)
	}
	if h.Head != NoCheckpoint {
		if h.Head = nearest(h.Head); h.Head == NoCheckpoint && len(all) > 0 {
			h.Head = all[len(all)-1].Number
		}
	}
	h.Checkpoints = all
	return gone
}
