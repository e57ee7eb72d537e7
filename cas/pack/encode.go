package pack

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"flash/cas"
)

// zstdWindowBytes suits pages; larger chunks lose a little. It bounds what a decoder must hold.
const zstdWindowBytes = 64 << 10

// Encoder turns chunks into records. Not safe for concurrent use; take one a goroutine.
type Encoder struct {
	codec Codec
	zstd  *zstd.Encoder // only for Zstd
}

// NewEncoder gives an encoder that compresses with codec whatever is worth it.
func NewEncoder(codec Codec) *Encoder {
	e := &Encoder{codec: codec}
	if codec == Zstd {
		var err error
		e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithAllLitEntropyCompression(true), // 3–10 % smaller on memory
			zstd.WithSingleSegment(true),            // or else short frames don't say how long they are
			zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindowBytes), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(fmt.Sprintf("pack: zstd refused constant options: %v", err))
		}
	}
	return e
}

// AppendRecord appends the record of c, which must pass Check. It keeps no reference to c.Data.
func (e *Encoder) AppendRecord(dst []byte, c *cas.Chunk) []byte {
	start := len(dst)
	payload := start + RecordHeaderBytes
	r := Record{Kind: c.Kind, PlainBytes: len(c.Data), NamedBytes: c.NamedBytes(), Hash: c.Hash}
	switch e.codec {
	case S2:
		room := s2.MaxEncodedLen(len(c.Data))
		dst = slices.Grow(dst, RecordHeaderBytes+room)
		r.StoredBytes = len(s2.Encode(dst[payload:payload+room], c.Data))
		dst = dst[:payload+r.StoredBytes]
	case Zstd:
		dst = slices.Grow(dst, RecordHeaderBytes+len(c.Data))[:payload]
		dst = e.zstd.EncodeAll(c.Data, dst)
		r.StoredBytes = len(dst) - payload
	}
	if e.codec != Raw && worthCompressing(r.PlainBytes, r.StoredBytes) {
		r.Codec = e.codec
	} else {
		dst = append(slices.Grow(dst[:start], RecordHeaderBytes+len(c.Data))[:payload], c.Data...)
		r.StoredBytes = len(c.Data)
	}
	putRecord(dst[start:], r)
	return dst
}
