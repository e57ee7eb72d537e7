package manifest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"flash/cas"
)

// Kind says what a snapshot is for.
type Kind uint8

const (
	Bundle     Kind = 1
	Checkpoint Kind = 2
)

func (k Kind) String() string {
	switch k {
	case Bundle:
		return "bundle"
	case Checkpoint:
		return "checkpoint"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ParseKind is the inverse of String; anything else is an error.
func ParseKind(s string) (Kind, error) {
	for _, k := range []Kind{Bundle, Checkpoint} {
		if s == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("snapshot kind %q, want bundle or checkpoint: %w", s, ErrFormat)
}

const (
	magicSnapshot = 'S'

	MaxImages     = 64
	MaxNameBytes  = 64
	MaxFacts      = 256
	MaxKeyBytes   = 255
	MaxValueBytes = 1 << 10
)

// A record is one chunk: 256 facts of 1.3 KiB and 64 images stay below it.
const _ = uint(cas.MaxChunkBytes - 48 - MaxFacts*(3+MaxKeyBytes+MaxValueBytes) - MaxImages*(1+MaxNameBytes+8+32+16+12) - 1)

// Image is one image of a snapshot.
type Image struct {
	Name  string
	Bytes uint64
	Root  cas.Ref // the zero Hash: all zeros
}

// Snapshot is a decoded snapshot record.
type Snapshot struct {
	Parent  cas.Hash // zero: none
	Kind    Kind
	Created time.Time // UTC, whole nanoseconds
	Facts   map[string]string
	Images  []Image // names ascending
}

// Append appends the record, annotation included, and tells how many of the appended bytes are canonical.
// Its error says what is out of bounds or order; what it accepts DecodeSnapshot gives back.
func (s *Snapshot) Append(dst []byte) (out []byte, named int, err error) {
	if err := s.check(); err != nil {
		return dst, 0, fmt.Errorf("snapshot record: %w", err)
	}
	start := len(dst)
	dst = append(dst, magicSnapshot, Version, byte(s.Kind), 0)
	dst = append(dst, s.Parent[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Created.UnixNano()))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Facts)))
	for _, key := range slices.Sorted(maps.Keys(s.Facts)) {
		dst = append(dst, byte(len(key)))
		dst = append(dst, key...)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Facts[key])))
		dst = append(dst, s.Facts[key]...)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Images)))
	h := hintWriter{}
	for _, im := range s.Images {
		dst = append(dst, byte(len(im.Name)))
		dst = append(dst, im.Name...)
		dst = binary.LittleEndian.AppendUint64(dst, im.Bytes)
		dst = append(dst, im.Root.Hash[:]...)
		if !im.Root.Hash.IsZero() {
			h.add(im.Root.Hint)
		}
	}
	dst = pad(dst, start)
	named = len(dst) - start
	return h.appendTo(dst), named, nil
}

func (s *Snapshot) check() error {
	if s.Kind != Bundle && s.Kind != Checkpoint {
		return fmt.Errorf("%s: %w", s.Kind, ErrFormat)
	}
	if !time.Unix(0, s.Created.UnixNano()).Equal(s.Created) || s.Created.UnixNano() == 0 {
		return fmt.Errorf("created at %v: %w", s.Created, ErrFormat)
	}
	if len(s.Facts) > MaxFacts || len(s.Images) > MaxImages {
		return fmt.Errorf("%d facts and %d images, at most %d and %d: %w", len(s.Facts), len(s.Images), MaxFacts, MaxImages, ErrFormat)
	}
	for k, v := range s.Facts {
		if k == "" || len(k) > MaxKeyBytes || len(v) > MaxValueBytes {
			return fmt.Errorf("fact %.40q with a value of %d bytes: %w", k, len(v), ErrFormat)
		}
	}
	for i, im := range s.Images {
		if im.Name == "" || len(im.Name) > MaxNameBytes || im.Bytes > MaxImageBytes {
			return fmt.Errorf("image %.40q of %d bytes: %w", im.Name, im.Bytes, ErrFormat)
		}
		if i > 0 && s.Images[i-1].Name >= im.Name {
			return fmt.Errorf("image %q after %q: %w", im.Name, s.Images[i-1].Name, ErrFormat)
		}
	}
	return nil
}

// DecodeSnapshot decodes a record, annotation included. It keeps no reference to p.
func DecodeSnapshot(p []byte) (*Snapshot, error) {
	s, err := decodeSnapshot(p)
	if err != nil {
		return nil, fmt.Errorf("snapshot record of %d bytes: %w: %w", len(p), err, ErrFormat)
	}
	return s, nil
}

func decodeSnapshot(p []byte) (*Snapshot, error) {
	c := cursor{p: p}
	head := c.take(4)
	if c.short {
		return nil, errShort
	}
	if head[0] != magicSnapshot || head[1] != Version || head[3] != 0 {
		return nil, fmt.Errorf("it begins with % x, want %x %x", head, magicSnapshot, Version)
	}
	s := &Snapshot{Kind: Kind(head[2])}
	copy(s.Parent[:], c.take(32))
	s.Created = time.Unix(0, int64(c.u64())).UTC()
	if err := s.decodeFacts(&c); err != nil {
		return nil, err
	}
	if err := s.decodeImages(&c); err != nil {
		return nil, err
	}
	if err := c.endCanonical(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	h, err := readHints(&c)
	if err != nil {
		return nil, err
	}
	for i := range s.Images {
		if !s.Images[i].Root.Hash.IsZero() {
			s.Images[i].Root.Hint = h.next()
		}
	}
	return s, h.end()
}

func (s *Snapshot) decodeFacts(c *cursor) error {
	count := int(c.u16())
	if c.short || count > MaxFacts {
		return fmt.Errorf("%d facts", count)
	}
	s.Facts = make(map[string]string, count)
	last := ""
	for range count {
		key := string(c.take(int(c.u8())))
		value := string(c.take(int(c.u16())))
		if c.short {
			return errShort
		}
		if key <= last {
			return fmt.Errorf("fact %q after %q", key, last)
		}
		s.Facts[key], last = value, key
	}
	return nil
}

func (s *Snapshot) decodeImages(c *cursor) error {
	count := int(c.u16())
	if c.short || count > MaxImages {
		return fmt.Errorf("%d images", count)
	}
	s.Images = make([]Image, count)
	for i := range s.Images {
		im := &s.Images[i]
		im.Name = string(c.take(int(c.u8())))
		im.Bytes = c.u64()
		copy(im.Root.Hash[:], c.take(32))
		if c.short {
			return errShort
		}
	}
	return nil
}
