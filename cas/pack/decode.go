package pack

import (
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"flash/cas"
)

// Decoder turns records into plain bytes. Not safe for concurrent use; take one a goroutine.
type Decoder struct {
	hasher cas.Hasher
	zstd   *zstd.Decoder // made when the first zstd record is met
}

// NewDecoder gives a decoder that checks names with hasher, which it uses alone from now on.
func NewDecoder(hasher cas.Hasher) *Decoder { return &Decoder{hasher: hasher} }

// AppendPlain decodes the record at the start of p and appends its plain bytes, annotation included, to dst. Without an
// error the CRC was right and the bytes hash to the record's name. p may be longer than the record.
func (d *Decoder) AppendPlain(dst, p []byte) ([]byte, Record, error) {
	r, err := CheckRecord(p)
	if err != nil {
		return dst, r, err
	}
	plain, err := d.appendPayload(dst, p[RecordHeaderBytes:r.Bytes()], r)
	if err != nil {
		return dst, r, err
	}
	if sum := d.hasher.Sum(plain[len(dst) : len(dst)+r.NamedBytes]); sum != r.Hash {
		return dst, r, fmt.Errorf("record: its bytes hash to %s: %w", sum, ErrDamaged)
	}
	return plain, r, nil
}

// NameIn is the name in a record's framing, unchecked. Precondition: len(p) ≥ RecordHeaderBytes.
func NameIn(p []byte) cas.Hash { return cas.Hash(p[16:48]) }

// Damaged reads what it can of a record whose CRC is wrong, for a check that wants to name it: its framing, and its plain
// bytes if they still decompress. Nothing of it may be served.
func (d *Decoder) Damaged(p []byte) (Record, []byte, error) {
	r, err := ParseRecord(p)
	if err != nil || len(p) < r.Bytes() {
		return r, nil, errors.Join(err, ErrDamaged)
	}
	plain, err := d.appendPayload(nil, p[RecordHeaderBytes:r.Bytes()], r)
	if err != nil {
		plain = nil
	}
	return r, plain, nil
}

// appendPayload decompresses. The room is what the framing says, and a payload that makes more or less is refused.
func (d *Decoder) appendPayload(dst, payload []byte, r Record) ([]byte, error) {
	start := len(dst)
	switch r.Codec {
	case Raw:
		return append(dst, payload...), nil
	case S2:
		if n, err := s2.DecodedLen(payload); err != nil || n != r.PlainBytes {
			return dst, fmt.Errorf("record: s2 block of %d bytes, want %d (%v): %w", n, r.PlainBytes, err, ErrDamaged)
		}
		dst = slices.Grow(dst, r.PlainBytes)
		if _, err := s2.Decode(dst[start:start+r.PlainBytes], payload); err != nil {
			return dst, fmt.Errorf("record: s2 block: %v: %w", err, ErrDamaged)
		}
		return dst[:start+r.PlainBytes], nil
	default:
		return d.appendZstd(dst, payload, r)
	}
}

func (d *Decoder) appendZstd(dst, payload []byte, r Record) ([]byte, error) {
	if d.zstd == nil {
		var err error
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(2*cas.MaxChunkBytes), zstd.WithDecoderMaxWindow(2*cas.MaxChunkBytes))
		if err != nil {
			panic(fmt.Sprintf("pack: zstd refused constant options: %v", err))
		}
	}
	start := len(dst)
	var frame zstd.Header
	if err := frame.Decode(payload); err != nil {
		return dst, fmt.Errorf("record: zstd frame: %v: %w", err, ErrDamaged)
	}
	if !frame.HasFCS || frame.FrameContentSize != uint64(r.PlainBytes) {
		return dst, fmt.Errorf("record: zstd frame of %d bytes, want %d: %w", frame.FrameContentSize, r.PlainBytes, ErrDamaged)
	}
	plain, err := d.zstd.DecodeAll(payload, slices.Grow(dst, r.PlainBytes))
	if err != nil {
		return dst, fmt.Errorf("record: zstd frame: %v: %w", err, ErrDamaged)
	}
	if len(plain)-start != r.PlainBytes {
		return dst, fmt.Errorf("record: zstd frame made %d bytes, want %d: %w", len(plain)-start, r.PlainBytes, ErrDamaged)
	}
	return plain, nil
}
