package seal

import "bytes"

// ObjectInfo is what a sealed object shows without its key, for people.
type ObjectInfo struct {
	Version      int
	SegmentBytes int
	Segments     int64
	PlainBytes   int64
	Salt         [saltBytes]byte
}

// IsObject tells whether bytes begin as a sealed object does.
func IsObject(p []byte) bool { return bytes.HasPrefix(p, []byte(magic)) }

// Inspect reads a sealed object's header, and what follows from its length. Nothing of it is vouched for without the key.
func Inspect(sealed []byte) (ObjectInfo, error) {
	h, err := decodeHeader(sealed)
	if err != nil {
		return ObjectInfo{}, err
	}
	plainBytes, ok := plainBytesOf(int64(len(sealed)))
	if !ok {
		return ObjectInfo{}, lengthError(int64(len(sealed)))
	}
	return ObjectInfo{Version: objectVersion, SegmentBytes: segmentBytes, Segments: segmentsOf(plainBytes), PlainBytes: plainBytes, Salt: h.salt}, nil
}
