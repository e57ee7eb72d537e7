package pack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"flash/cas"
)

const (
	// HeaderBytes is the length of a pack's header, and so the offset of its first record.
	HeaderBytes = 64
	// Version is the format version this package writes, and the only one it reads.
	Version = 1

	headerMagic = "FLSHPACK"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says which pack it is and which key names its chunks.
type Header struct {
	ID      cas.PackID
	KeyID   uint32
	Created time.Time // UTC
}

// AppendHeader encodes h.
func AppendHeader(dst []byte, h Header) []byte {
	start := len(dst)
	dst = append(dst, headerMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, HeaderBytes)
	dst = binary.LittleEndian.AppendUint32(dst, h.KeyID)
	dst = append(dst, h.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Created.UnixNano()))
	dst = append(dst, make([]byte, 20)...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseHeader decodes the header at the start of p.
func ParseHeader(p []byte) (Header, error) {
	var h Header
	if len(p) < HeaderBytes {
		return h, fmt.Errorf("pack header: %d bytes, want %d: %w", len(p), HeaderBytes, ErrDamaged)
	}
	p = p[:HeaderBytes]
	if string(p[:8]) != headerMagic {
		return h, fmt.Errorf("pack header: magic is %q: %w", p[:8], ErrDamaged)
	}
	want, got := binary.LittleEndian.Uint32(p[60:]), crc32.Checksum(p[:60], castagnoli)
	if want != got {
		return h, fmt.Errorf("pack header: checksum is %08x, want %08x: %w", got, want, ErrDamaged)
	}
	if v := binary.LittleEndian.Uint16(p[8:]); v != Version {
		return h, fmt.Errorf("pack header: version %d: %w", v, ErrUnsupported)
	}
	if n := binary.LittleEndian.Uint16(p[10:]); n != HeaderBytes || !bytes.Equal(p[40:60], make([]byte, 20)) {
		return h, fmt.Errorf("pack header: %d bytes, or reserved bytes in use: %w", n, ErrUnsupported)
	}
	h.KeyID = binary.LittleEndian.Uint32(p[12:])
	copy(h.ID[:], p[16:32])
	h.Created = time.Unix(0, int64(binary.LittleEndian.Uint64(p[32:]))).UTC()
	if h.ID == (cas.PackID{}) {
		return h, fmt.Errorf("pack header: the pack id is zero: %w", ErrDamaged)
	}
	return h, nil
}
