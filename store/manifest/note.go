package manifest

import (
	"encoding/binary"
	"fmt"
	"time"

	"flash/cas"
)

// NoteKind says what a note tells.
type NoteKind uint8

const (
	NoteVM            NoteKind = 1
	NoteVMRemoved     NoteKind = 2
	NoteBundle        NoteKind = 3
	NoteBundleRemoved NoteKind = 4
	NoteCatalogue     NoteKind = 5
)

const (
	magicNote  = 'R'
	magicPiece = 'P'

	// PieceBytes is how much of a history one piece holds.
	PieceBytes = 512 << 10
	// MaxPieces bounds a history in pieces.
	MaxPieces = MaxHistoryBytes / PieceBytes

	maxParts    = 1<<16 - 1
	pieceHeader = 2
)

// A piece is one chunk, and the number of pieces has 16 bits.
const (
	_ = uint(cas.MaxChunkBytes - PieceBytes - pieceHeader)
	_ = uint(1<<16 - 1 - MaxPieces)
)

// NamedBundle is a bundle's name and what it names.
type NamedBundle struct {
	Name     string
	Snapshot cas.Hash
	Created  time.Time
}

// StoreID tells the notes of one store from those that came with another's packs.
type StoreID [16]byte

// Note is one decoded note. Which fields are set depends on the kind.
type Note struct {
	Kind     NoteKind
	Sequence uint64
	Written  time.Time // UTC
	Store    StoreID
	History  *History      // VM
	Name     string        // VM removed, bundle removed
	Bundle   NamedBundle   // bundle
	Part     CataloguePart // catalogue
}

// CataloguePart is a part of a catalogue: all its parts have one sequence number.
type CataloguePart struct {
	Covers      uint64
	Part, Parts int
	VMs         [][]cas.Hash // the pieces of each history
	Bundles     []NamedBundle
}

// Append appends the note; what it accepts DecodeNote gives back.
func (n *Note) Append(dst []byte) ([]byte, error) {
	start := len(dst)
	dst = append(dst, magicNote, Version, byte(n.Kind), 0)
	dst = binary.LittleEndian.AppendUint64(dst, n.Sequence)
	dst = appendTime(dst, n.Written)
	dst = append(dst, n.Store[:]...)
	var err error
	switch n.Kind {
	case NoteVM:
		dst, err = n.History.Append(dst)
	case NoteVMRemoved, NoteBundleRemoved:
		if !isName(n.Name) {
			err = fmt.Errorf("a name of %d bytes", len(n.Name))
		}
		dst = append(append(dst, byte(len(n.Name))), n.Name...)
	case NoteBundle:
		err = n.Bundle.check()
		dst = n.Bundle.append(dst)
	case NoteCatalogue:
		err = n.Part.check()
		dst = n.Part.append(dst)
	default:
		err = fmt.Errorf("kind %d", n.Kind)
	}
	if err == nil {
		err = n.checkHeader()
	}
	if dst = pad(dst, start); err == nil && len(dst)-start > cas.MaxChunkBytes {
		err = fmt.Errorf("%d bytes, at most %d", len(dst)-start, cas.MaxChunkBytes)
	}
	if err != nil {
		return dst[:start], fmt.Errorf("note: %w: %w", err, ErrFormat)
	}
	return dst, nil
}

// DecodeNote decodes a note. It keeps no reference to p.
func DecodeNote(p []byte) (*Note, error) {
	n, err := decodeNote(p)
	if err != nil {
		return nil, fmt.Errorf("note of %d bytes: %w: %w", len(p), err, ErrFormat)
	}
	return n, nil
}

func decodeNote(p []byte) (*Note, error) {
	if len(p) == cas.SlotBytes {
		return nil, fmt.Errorf("it is as long as a page")
	}
	if len(p) == cas.SlotBytes+1 { // padded, or just so long
		if n, err := decodeUnpadded(p); err == nil || p[cas.SlotBytes] != 0 {
			return n, err
		}
		p = p[:cas.SlotBytes]
	}
	return decodeUnpadded(p)
}

func decodeUnpadded(p []byte) (*Note, error) {
	c := cursor{p: p}
	head := c.take(4)
	if c.short {
		return nil, errShort
	}
	if head[0] != magicNote || head[1] != Version || head[3] != 0 {
		return nil, fmt.Errorf("it begins with % x, want %x %x", head, magicNote, Version)
	}
	n := &Note{Kind: NoteKind(head[2]), Sequence: c.u64(), Written: c.time()}
	copy(n.Store[:], c.take(len(n.Store)))
	var err error
	switch n.Kind {
	case NoteVM:
		if !c.short {
			n.History, err = DecodeHistory(c.take(len(p) - c.at))
		}
	case NoteVMRemoved, NoteBundleRemoved:
		if n.Name = string(c.take(int(c.u8()))); !isName(n.Name) {
			err = fmt.Errorf("a name of %d bytes", len(n.Name))
		}
	case NoteBundle:
		n.Bundle.decode(&c)
		err = n.Bundle.check()
	case NoteCatalogue:
		n.Part.decode(&c)
		err = n.Part.check()
	default:
		err = fmt.Errorf("kind %d", head[2])
	}
	switch {
	case c.short:
		return nil, errShort
	case err != nil:
		return nil, err
	case c.at != len(p):
		return nil, fmt.Errorf("%d bytes are left over", len(p)-c.at)
	}
	if err := n.checkHeader(); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Note) checkHeader() error {
	if n.Sequence == 0 || n.Store == (StoreID{}) || !isTime(n.Written) {
		return fmt.Errorf("number %d of store %x at %v", n.Sequence, n.Store, n.Written)
	}
	return nil
}

func (b *NamedBundle) check() error {
	if !isName(b.Name) || b.Snapshot.IsZero() || !isTime(b.Created) {
		return fmt.Errorf("bundle %.140q names %s since %v", b.Name, b.Snapshot, b.Created)
	}
	return nil
}

func (b *NamedBundle) append(dst []byte) []byte {
	dst = append(append(dst, byte(len(b.Name))), b.Name...)
	dst = append(dst, b.Snapshot[:]...)
	return appendTime(dst, b.Created)
}

func (b *NamedBundle) decode(c *cursor) {
	b.Name = string(c.take(int(c.u8())))
	copy(b.Snapshot[:], c.take(32))
	b.Created = c.time()
}

func (p *CataloguePart) check() error {
	if p.Parts < 1 || p.Parts > maxParts || p.Part < 0 || p.Part >= p.Parts {
		return fmt.Errorf("part %d of %d", p.Part, p.Parts)
	}
	for _, pieces := range p.VMs {
		if len(pieces) < 1 || len(pieces) > MaxPieces {
			return fmt.Errorf("a history of %d pieces", len(pieces))
		}
	}
	for i := range p.Bundles {
		if err := p.Bundles[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *CataloguePart) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, p.Covers)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(p.Part))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(p.Parts))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p.VMs)))
	for _, pieces := range p.VMs {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(pieces)))
		for _, h := range pieces {
			dst = append(dst, h[:]...)
		}
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p.Bundles)))
	for i := range p.Bundles {
		dst = p.Bundles[i].append(dst)
	}
	return dst
}

func (p *CataloguePart) decode(c *cursor) {
	p.Covers = c.u64()
	p.Part, p.Parts = int(c.u16()), int(c.u16())
	if count := c.count(2 + 32); count > 0 {
		p.VMs = make([][]cas.Hash, count)
	}
	for i := range p.VMs {
		count := int(c.u16())
		if c.short || count > (len(c.p)-c.at)/32 {
			c.short = true
			return
		}
		p.VMs[i] = make([]cas.Hash, count)
		for k := range p.VMs[i] {
			copy(p.VMs[i][k][:], c.take(32))
		}
	}
	if count := c.count(1 + 1 + 32 + 8); count > 0 {
		p.Bundles = make([]NamedBundle, count)
	}
	for i := range p.Bundles {
		p.Bundles[i].decode(c)
	}
}

// Pieces cuts an encoded history into the pieces a catalogue names.
func Pieces(history []byte) [][]byte {
	var pieces [][]byte
	for len(history) > 0 {
		some := history[:min(len(history), PieceBytes)]
		pieces = append(pieces, append([]byte{magicPiece, Version}, some...))
		history = history[len(some):]
	}
	return pieces
}

// IsPiece tells a piece from a note.
func IsPiece(p []byte) bool { return len(p) > pieceHeader && p[0] == magicPiece }

// JoinPieces is the inverse of Pieces.
func JoinPieces(pieces [][]byte) ([]byte, error) {
	var history []byte
	for i, p := range pieces {
		if len(p) <= pieceHeader || p[0] != magicPiece || p[1] != Version || len(p)-pieceHeader > PieceBytes {
			return nil, fmt.Errorf("piece %d of a history has %d bytes: %w", i, len(p), ErrFormat)
		}
		history = append(history, p[pieceHeader:]...)
	}
	return history, nil
}
