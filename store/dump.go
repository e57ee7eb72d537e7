package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"flash/cas"
	"flash/store/manifest"
)

// NodeDump is a tree node as it is stored, for people.
type NodeDump struct {
	Level   int
	Base    cas.Ref // of a patch; the zero Hash: it is full
	Entries []EntryDump
}

// EntryDump is one entry that isn't zero, or, of a patch, one that is listed.
type EntryDump struct {
	Index   int
	What    string // zero, same-filled, chunk
	Pattern string // of a same-filled one, hex
	Ref     cas.Ref
}

// DumpNode reads a node. ErrNotFound, ErrCorrupt, ErrFormat for a chunk that is none.
func (s *Store) DumpNode(ctx context.Context, h cas.Hash) (NodeDump, error) {
	p, err := s.chunks.Get(ctx, cas.Ref{Hash: h}, nil)
	if errors.Is(err, cas.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return NodeDump{}, fmt.Errorf("node %s: %w", h, err)
	}
	level := 0
	if len(p) > 3 {
		level = int(p[3])
	}
	n, err := manifest.DecodeNode(p, level)
	if err != nil {
		return NodeDump{}, fmt.Errorf("node %s: %w", h, err)
	}
	d := NodeDump{Level: level, Base: n.Base}
	add := func(index int, e manifest.Entry) {
		dump := EntryDump{Index: index, What: "zero"}
		switch e.Tag {
		case manifest.Same:
			pattern := e.Pattern()
			dump.What, dump.Pattern = "same-filled", hex.EncodeToString(pattern[:])
		case manifest.Chunk:
			dump.What, dump.Ref = "chunk", e.Ref()
		}
		d.Entries = append(d.Entries, dump)
	}
	for i, e := range n.Entries {
		switch {
		case n.IsPatch():
			add(int(n.Index[i]), e)
		case e.Tag != manifest.Zero:
			add(i, e)
		}
	}
	return d, nil
}

// ImageDump is one image of a snapshot, for people.
type ImageDump struct {
	Name  string
	Bytes uint64
	Root  cas.Ref // the zero Hash: all zeros
}

// Roots lists the images with their trees' roots, for people.
func (sn *Snapshot) Roots() []ImageDump {
	var all []ImageDump
	for _, im := range sn.record.Images {
		all = append(all, ImageDump(im))
	}
	return all
}
