package manifest

import (
	"fmt"

	"flash/cas"
)

// Node is a decoded node.
type Node struct {
	Level   int
	Base    cas.Ref // a patch's; the zero Hash says that the node is full
	Index   []uint8 // a patch's: which entries of the base are replaced, ascending
	Entries []Entry // all of a full node, or those of Index
}

// IsPatch tells whether the node needs its base.
func (n *Node) IsPatch() bool { return !n.Base.Hash.IsZero() }

// Over gives the entries of the patch n applied to its base, in a new slice.
func (n *Node) Over(base *Node) ([]Entry, error) {
	switch {
	case base.IsPatch():
		return nil, fmt.Errorf("the base %s of a patch is a patch: %w", n.Base.Hash, ErrFormat)
	case base.Level != n.Level:
		return nil, fmt.Errorf("the base %s of a patch of level %d has level %d: %w", n.Base.Hash, n.Level, base.Level, ErrFormat)
	}
	entries := make([]Entry, len(base.Entries))
	copy(entries, base.Entries)
	for i, at := range n.Index {
		entries[at] = n.Entries[i]
	}
	return entries, nil
}

// DecodeNode decodes a node of the given level, annotation included. It keeps no reference to p.
func DecodeNode(p []byte, level int) (*Node, error) {
	n, err := decodeNode(p, level)
	if err != nil {
		return nil, fmt.Errorf("node of %d bytes: %w: %w", len(p), err, ErrFormat)
	}
	return n, nil
}

func decodeNode(p []byte, level int) (*Node, error) {
	c := cursor{p: p}
	head := c.take(nodeHeaderBytes)
	if c.short {
		return nil, errShort
	}
	switch {
	case head[0] != magicNode:
		return nil, fmt.Errorf("first byte %#x, want %#x", head[0], magicNode)
	case head[1] != Version:
		return nil, fmt.Errorf("version %d, want %d", head[1], Version)
	case level < 0 || level > MaxLevel || int(head[3]) != level:
		return nil, fmt.Errorf("level %d, want %d", head[3], level)
	}
	n := &Node{Level: level}
	var err error
	switch head[2] {
	case formFull:
		err = n.decodeFull(&c)
	case formPatch:
		err = n.decodePatch(&c)
	default:
		err = fmt.Errorf("form %d", head[2])
	}
	if err != nil {
		return nil, err
	}
	if err := c.endCanonical(); err != nil {
		return nil, err
	}
	h, err := readHints(&c)
	if err != nil {
		return nil, err
	}
	if n.IsPatch() {
		n.Base.Hint = h.next()
	}
	for i := range n.Entries {
		if n.Entries[i].Tag == Chunk {
			n.Entries[i].Hint = h.next()
		}
	}
	return n, h.end()
}

func (n *Node) decodeFull(c *cursor) error {
	count := EntryCount(n.Level)
	tags := c.take(count / 4)
	if c.short {
		return errShort
	}
	n.Entries = make([]Entry, count)
	held := 0
	for i := range n.Entries {
		tag := Tag(tags[i/4] >> (i % 4 * 2) & 3)
		if tag != Zero {
			held++
		}
		if err := n.Entries[i].decode(c, tag, n.Level); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	if held == 0 {
		return fmt.Errorf("a full node of zeros")
	}
	return nil
}

func (n *Node) decodePatch(c *cursor) error {
	copy(n.Base.Hash[:], c.take(32))
	count := int(c.u16())
	switch {
	case c.short:
		return errShort
	case n.Base.Hash.IsZero():
		return fmt.Errorf("a patch without a base")
	case count == 0 || count > EntryCount(n.Level):
		return fmt.Errorf("a patch of %d entries", count)
	}
	n.Index = make([]uint8, count)
	n.Entries = make([]Entry, count)
	for i := range n.Entries {
		at, tag := c.u8(), Tag(c.u8())
		if c.short {
			return errShort
		}
		if int(at) >= EntryCount(n.Level) || i > 0 && n.Index[i-1] >= at {
			return fmt.Errorf("patch entry %d has index %d, which is out of order or range", i, at)
		}
		n.Index[i] = at
		if err := n.Entries[i].decode(c, tag, n.Level); err != nil {
			return fmt.Errorf("patch entry %d: %w", i, err)
		}
	}
	return nil
}

func (e *Entry) decode(c *cursor, tag Tag, level int) error {
	e.Tag = tag
	switch {
	case tag == Zero:
		return nil
	case tag == Chunk:
		copy(e.Hash[:], c.take(32))
	case tag == Same && level == 0:
		copy(e.Hash[:8], c.take(8))
	default:
		return fmt.Errorf("tag %d at level %d", tag, level)
	}
	if c.short {
		return errShort
	}
	if e.Hash.IsZero() {
		return fmt.Errorf("tag %d with a value of zeros", tag)
	}
	return nil
}
