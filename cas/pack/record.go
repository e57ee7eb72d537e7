package pack

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"flash/cas"
)

const (
	// RecordHeaderBytes is what a record costs beside its payload.
	RecordHeaderBytes = 48
	// MaxRecordBytes bounds a whole record.
	MaxRecordBytes = RecordHeaderBytes + cas.MaxChunkBytes

	recordMarker = 0xC5
	crcOffset    = 12
)

// Codec says how a payload is compressed.
type Codec uint8

const (
	Raw  Codec = 0
	S2   Codec = 1 // about 690 MB/s to encode, 1.3 GB/s to decode: for capture
	Zstd Codec = 2 // a fifth smaller, 150 MB/s to encode: for compaction
)

func (c Codec) String() string {
	switch c {
	case Raw:
		return "raw"
	case S2:
		return "s2"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", uint8(c))
}

// compressedPercent is the most a compressed payload may be of its plain bytes. Above, it isn't worth the decoding.
const compressedPercent = 93

func worthCompressing(plainBytes, storedBytes int) bool {
	return storedBytes*100 <= plainBytes*compressedPercent
}

// Record is the framing of one chunk.
type Record struct {
	Kind        cas.Kind
	Codec       Codec
	PlainBytes  int
	StoredBytes int
	NamedBytes  int
	Hash        cas.Hash
}

// Bytes is the length of the whole record.
func (r Record) Bytes() int { return RecordHeaderBytes + r.StoredBytes }

// ParseRecord decodes a record's framing at the start of p, which may end before the payload does. It checks all but
// the CRC and the payload: the lengths are within their bounds.
func ParseRecord(p []byte) (Record, error) {
	var r Record
	if len(p) < RecordHeaderBytes {
		return r, fmt.Errorf("record: %d bytes, want at least %d: %w", len(p), RecordHeaderBytes, ErrDamaged)
	}
	if p[0] != recordMarker {
		return r, fmt.Errorf("record: begins with %#02x instead of the marker: %w", p[0], ErrDamaged)
	}
	r = Record{
		Kind: cas.Kind(p[1] & 15), Codec: Codec(p[1] >> 4),
		PlainBytes: uint24(p[3:]), StoredBytes: uint24(p[6:]), NamedBytes: uint24(p[9:]),
		Hash: cas.Hash(p[16:48]),
	}
	switch {
	case p[2] != 0:
		return r, fmt.Errorf("record: flags %#02x, encryption %d: %w", p[2]&^3, p[2]&3, ErrUnsupported)
	case r.Kind < cas.KindData || r.Kind > cas.KindNote:
		return r, fmt.Errorf("record: kind %d: %w", r.Kind, ErrUnsupported)
	case r.Codec > Zstd:
		return r, fmt.Errorf("record: %s: %w", r.Codec, ErrUnsupported)
	case r.PlainBytes < 1 || r.PlainBytes > cas.MaxChunkBytes:
		return r, fmt.Errorf("record: %d plain bytes, want 1 to %d: %w", r.PlainBytes, cas.MaxChunkBytes, ErrDamaged)
	case r.NamedBytes < 1 || r.NamedBytes > r.PlainBytes:
		return r, fmt.Errorf("record: hash covers %d of %d bytes: %w", r.NamedBytes, r.PlainBytes, ErrDamaged)
	case r.Codec == Raw && r.StoredBytes != r.PlainBytes,
		r.Codec != Raw && (r.StoredBytes < 1 || !worthCompressing(r.PlainBytes, r.StoredBytes)):
		return r, fmt.Errorf("record: %s, %d bytes stored for %d: %w", r.Codec, r.StoredBytes, r.PlainBytes, ErrDamaged)
	case r.Hash.IsZero():
		return r, fmt.Errorf("record: the hash is zero: %w", ErrDamaged)
	}
	return r, nil
}

// CheckRecord parses the record at the start of p and checks its CRC. p may be longer than the record.
func CheckRecord(p []byte) (Record, error) {
	r, err := ParseRecord(p)
	if err != nil {
		return r, err
	}
	if len(p) < r.Bytes() {
		return r, fmt.Errorf("record: %d of %d bytes are there: %w", len(p), r.Bytes(), ErrDamaged)
	}
	want, got := binary.LittleEndian.Uint32(p[crcOffset:]), recordCRC(p[:r.Bytes()])
	if want != got {
		return r, fmt.Errorf("record: checksum is %08x, want %08x: %w", got, want, ErrDamaged)
	}
	return r, nil
}

// putRecord writes the framing before the payload that is in place. record is the whole record.
func putRecord(record []byte, r Record) {
	record[0] = recordMarker
	record[1] = byte(r.Kind) | byte(r.Codec)<<4
	record[2] = 0
	putUint24(record[3:], r.PlainBytes)
	putUint24(record[6:], r.StoredBytes)
	putUint24(record[9:], r.NamedBytes)
	copy(record[16:48], r.Hash[:])
	binary.LittleEndian.PutUint32(record[crcOffset:], recordCRC(record))
}

func recordCRC(record []byte) uint32 {
	crc := crc32.Update(0, castagnoli, record[:crcOffset])
	return crc32.Update(crc, castagnoli, record[crcOffset+4:])
}

func uint24(p []byte) int { return int(p[0]) | int(p[1])<<8 | int(p[2])<<16 }

func putUint24(p []byte, v int) { p[0], p[1], p[2] = byte(v), byte(v>>8), byte(v>>16) }
