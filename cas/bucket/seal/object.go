package seal

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"flash/cas/bucket"
)

const (
	magic          = "FLSEAL"
	objectVersion  = 1
	segmentLog2    = 16
	segmentBytes   = 1 << segmentLog2
	tagBytes       = 16
	sealedSegBytes = segmentBytes + tagBytes
	saltBytes      = 32
	headerBytes    = 40 // 6 magic, 1 version, 1 segment size, 32 salt
	nonceBytes     = 12

	minSealedBytes = headerBytes + tagBytes // an empty object
	maxPlainBytes  = 1 << 46                // far above any object storage's, far below where arithmetic overflows
)

// errVersion is an object of a later version: not damage, and to be told apart from it.
var errVersion = errors.New("the object was sealed by a later version of flash: update this one")

// header begins every sealed object.
type header struct {
	salt [saltBytes]byte
}

func (h header) encode() (b [headerBytes]byte) {
	copy(b[:], magic)
	b[6] = objectVersion
	b[7] = segmentLog2
	copy(b[8:], h.salt[:])
	return b
}

func decodeHeader(b []byte) (h header, err error) {
	if len(b) < headerBytes || string(b[:6]) != magic {
		return header{}, fmt.Errorf("it doesn't begin as a sealed object: %w", bucket.ErrIntegrity)
	}
	if b[6] > objectVersion {
		return header{}, fmt.Errorf("version %d: %w", b[6], errVersion)
	}
	if b[6] != objectVersion || b[7] != segmentLog2 {
		return header{}, fmt.Errorf("its header says version %d and segments of 2^%d bytes, which never were: %w",
			b[6], b[7], bucket.ErrIntegrity)
	}
	copy(h.salt[:], b[8:headerBytes])
	return h, nil
}

// segmentsOf says how many segments an object of so many plain bytes has. An empty one has one.
func segmentsOf(plainBytes int64) int64 {
	return max(1, (plainBytes+segmentBytes-1)/segmentBytes)
}

// sealedBytesOf says how long the sealed object is.
func sealedBytesOf(plainBytes int64) int64 {
	return headerBytes + plainBytes + tagBytes*segmentsOf(plainBytes)
}

// plainBytesOf is the inverse of sealedBytesOf; ok is false for a length no sealed object has.
func plainBytesOf(sealedBytes int64) (plainBytes int64, ok bool) {
	body := sealedBytes - headerBytes
	if body < tagBytes || body > maxPlainBytes {
		return 0, false
	}
	segments := (body + sealedSegBytes - 1) / sealedSegBytes
	last := body - (segments-1)*sealedSegBytes
	if last < tagBytes || last == tagBytes && segments > 1 {
		return 0, false
	}
	return body - segments*tagBytes, true
}

func nonceOf(segment int64, last bool) (nonce [nonceBytes]byte) {
	binary.BigEndian.PutUint64(nonce[3:], uint64(segment))
	if last {
		nonce[11] = 1
	}
	return nonce
}

// sealSegment appends a segment's sealed bytes to dst.
func sealSegment(aead cipher.AEAD, dst, plain []byte, segment int64, last bool) []byte {
	nonce := nonceOf(segment, last)
	return aead.Seal(dst, nonce[:], plain, nil)
}

// openSegment appends a segment's plain bytes to dst, which may share memory with sealed only if it begins there too.
func openSegment(aead cipher.AEAD, dst, sealed []byte, segment int64, last bool) ([]byte, error) {
	nonce := nonceOf(segment, last)
	plain, err := aead.Open(dst, nonce[:], sealed, nil)
	if err != nil {
		return nil, segmentError(segment)
	}
	return plain, nil
}

func segmentError(segment int64) error {
	return fmt.Errorf("segment %d, at byte %d, was changed, or belongs elsewhere: %w",
		segment, headerBytes+segment*sealedSegBytes, bucket.ErrIntegrity)
}

func lengthError(sealedBytes int64) error {
	return fmt.Errorf("no sealed object has %d bytes: %w", sealedBytes, bucket.ErrIntegrity)
}

// open opens a whole object in place: what it returns lies in sealed's memory.
func (k *objectKeys) open(sealed []byte, storedKey string) ([]byte, error) {
	h, err := decodeHeader(sealed)
	if err != nil {
		return nil, err
	}
	plainBytes, ok := plainBytesOf(int64(len(sealed)))
	if !ok {
		return nil, lengthError(int64(len(sealed)))
	}
	aead := k.objectAEAD(h, storedKey)
	plain, rest := sealed[:0], sealed[headerBytes:]
	last := segmentsOf(plainBytes) - 1
	for i := range last + 1 {
		seg := rest[:min(len(rest), sealedSegBytes)]
		rest = rest[len(seg):]
		opened, err := openSegment(aead, seg[:0], seg, i, i == last)
		if err != nil {
			return nil, err
		}
		plain = append(plain, opened...) // moves left over what was opened before: the header's and the tags' room
	}
	return plain, nil
}
