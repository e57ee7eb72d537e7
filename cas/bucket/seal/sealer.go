package seal

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"sync"
)

// hashWindowBytes is how much is read at once to make a salt.
const hashWindowBytes = 256 << 10 // 4 segments

// saltOf reads all of r once. The salt depends on every byte, so an object key seals one content only.
func (k *objectKeys) saltOf(ctx context.Context, storedKey string, r io.ReaderAt, plainBytes int64) (h header, err error) {
	hash := k.saltHasher(storedKey)
	buf := make([]byte, min(plainBytes, hashWindowBytes))
	for offset := int64(0); offset < plainBytes; {
		if err := ctx.Err(); err != nil {
			return header{}, err
		}
		n := min(plainBytes-offset, int64(len(buf)))
		if err := readFullAt(r, buf[:n], offset); err != nil {
			return header{}, err
		}
		hash.Write(buf[:n]) // never fails
		offset += n
	}
	hash.Sum(h.salt[:0])
	return h, nil
}

// sealer is the sealed object as an io.ReaderAt over the plain one. It seals what is asked for when it is asked, the same
// bytes each time, and keeps one segment: a client that sends by small reads in order has each segment sealed once.
type sealer struct {
	plain      io.ReaderAt
	plainBytes int64
	header     [headerBytes]byte
	aead       cipher.AEAD

	mu      sync.Mutex // guards the rest
	segment int64      // the one sealed holds; -1: none
	sealed  []byte
	scratch []byte // its plain bytes
}

func newSealer(k *objectKeys, h header, storedKey string, r io.ReaderAt, plainBytes int64) *sealer {
	return &sealer{plain: r, plainBytes: plainBytes, header: h.encode(), aead: k.objectAEAD(h, storedKey), segment: -1}
}

func (s *sealer) bytes() int64 { return sealedBytesOf(s.plainBytes) }

// ReadAt is as io.ReaderAt's.
func (s *sealer) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, fmt.Errorf("read a sealed object at %d: the offset is negative", offset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(p) {
		at := offset + int64(n)
		if at >= s.bytes() {
			return n, io.EOF
		}
		if at < headerBytes {
			n += copy(p[n:], s.header[at:])
			continue
		}
		i := (at - headerBytes) / sealedSegBytes
		if err := s.fill(i); err != nil {
			return n, err
		}
		n += copy(p[n:], s.sealed[at-headerBytes-i*sealedSegBytes:])
	}
	return n, nil
}

// fill seals segment i. Preconditions: s.mu is held; the object has the segment.
func (s *sealer) fill(i int64) error {
	if s.segment == i {
		return nil
	}
	if s.scratch == nil {
		room := min(s.plainBytes, segmentBytes)
		s.scratch = make([]byte, room)
		s.sealed = make([]byte, 0, room+tagBytes)
	}
	s.segment = -1
	plain := s.scratch[:min(s.plainBytes-i*segmentBytes, segmentBytes)]
	if err := readFullAt(s.plain, plain, i*segmentBytes); err != nil {
		return err
	}
	s.sealed = sealSegment(s.aead, s.sealed[:0], plain, i, i == segmentsOf(s.plainBytes)-1)
	s.segment = i
	return nil
}

// readFullAt fills p. A reader may say io.EOF beside the last bytes.
func readFullAt(r io.ReaderAt, p []byte, offset int64) error {
	n, err := r.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read what is to be sealed at byte %d: %w", offset+int64(n), err)
}
