package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"flash/cas"
)

var errShort = errors.New("it ends too early")

// cursor reads p from the front. After reading past the end it gives zeros and short is set.
type cursor struct {
	p     []byte
	at    int
	short bool
}

func (c *cursor) take(count int) []byte {
	if c.short || count > len(c.p)-c.at {
		c.short = true
		return nil
	}
	c.at += count
	return c.p[c.at-count : c.at]
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// u32v reads an uvarint that must fit 32 bits.
func (c *cursor) u32v() uint32 {
	v, width := binary.Uvarint(c.p[c.at:])
	if c.short || width <= 0 || v > 1<<32-1 {
		c.short = true
		return 0
	}
	c.at += width
	return uint32(v)
}

// endCanonical reads the pad byte where there must be one.
func (c *cursor) endCanonical() error {
	if c.short {
		return errShort
	}
	if c.at != cas.SlotBytes {
		return nil
	}
	if b := c.take(1); b == nil || b[0] != 0 {
		return fmt.Errorf("a canonical part as long as a page isn't padded")
	}
	return nil
}
