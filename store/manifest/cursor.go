package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

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

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// number reads a checkpoint's number, or one more than it. Larger ones are for check to refuse.
func (c *cursor) number() int { return int(c.u32()) }

func (c *cursor) time() time.Time { return time.Unix(0, int64(c.u64())).UTC() }

// bytes32 copies bytes that follow their length; nil for none.
func (c *cursor) bytes32(limit int) []byte {
	length := c.u32()
	if c.short || uint64(length) > uint64(limit) {
		c.short = true
		return nil
	}
	return append([]byte(nil), c.take(int(length))...)
}

// count reads how many things follow, each of at least so many bytes.
func (c *cursor) count(least int) int {
	count := c.u32()
	if c.short || uint64(count) > uint64(len(c.p)-c.at)/uint64(least) {
		c.short = true
		return 0
	}
	return int(count)
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
