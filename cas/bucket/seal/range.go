package seal

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"flash/cas/bucket"
)

// rangeTries: an object may be replaced between two requests of one read, whose answers then don't fit together.
const rangeTries = 3

// GetRange reads the segments that cover the range, in one request, and beside it the header where it isn't known yet. Near
// an object's end, which isn't known at first, two more. Memory: as much as dst, rounded up to segments.
func (s *Bucket) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	if key == MarkerKey {
		return s.below.GetRange(ctx, key, dst, offset)
	}
	stored, err := s.locate(key)
	if err != nil {
		return err
	}
	if offset < 0 || offset > maxPlainBytes || int64(len(dst)) > maxPlainBytes {
		return fmt.Errorf("read %s: there are no %d bytes from %d on", key, len(dst), offset)
	}
	for try := 1; ; try++ {
		err := s.readRange(ctx, stored, dst, offset)
		if err == nil {
			return nil
		}
		s.salts.forget(stored)
		if !errors.Is(err, bucket.ErrIntegrity) || try == rangeTries {
			return named(key, stored, err)
		}
	}
}

// readRange reads a range once, with what is remembered of the object.
func (s *Bucket) readRange(ctx context.Context, stored string, dst []byte, offset int64) error {
	o, known := s.salts.get(stored)
	if len(dst) > 0 && o.sealedBytes == 0 {
		covering, h, err := s.fetchCovering(ctx, stored, offset, len(dst), o.header, known)
		if err == nil {
			s.salts.put(stored, object{header: h})
			return s.openRange(stored, h, 0, covering, dst, offset)
		}
		if !errors.Is(err, bucket.ErrShort) {
			return err
		}
		o.header = h
	}
	if len(dst) == 0 { // the answer depends on nothing but the object's end, which may have moved
		o = object{}
	}
	// The range reaches into the last segment, or beyond: now the size is worth a request.
	o, err := s.complete(ctx, stored, o)
	if err != nil {
		return err
	}
	return s.readNearEnd(ctx, stored, o, dst, offset)
}

// fetchCovering reads the covering segments as if all were full, and the header unless it is known. ErrShort, beside the
// header, when the last segment isn't full.
func (s *Bucket) fetchCovering(ctx context.Context, stored string, offset int64, dstBytes int, h header, known bool) (covering []byte, _ header, _ error) {
	first, end := coveringSegments(offset, dstBytes)
	covering = make([]byte, (end-first)*sealedSegBytes)
	var g errgroup.Group
	var rangeErr error
	g.Go(func() error {
		rangeErr = s.below.GetRange(ctx, stored, covering, headerBytes+first*sealedSegBytes)
		return nil
	})
	if !known {
		g.Go(func() (err error) {
			h, err = s.fetchHeader(ctx, stored)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, header{}, err
	}
	return covering, h, rangeErr
}

func (s *Bucket) fetchHeader(ctx context.Context, stored string) (header, error) {
	var b [headerBytes]byte
	if err := s.below.GetRange(ctx, stored, b[:], 0); err != nil {
		if errors.Is(err, bucket.ErrShort) {
			err = fmt.Errorf("it is shorter than a sealed object's header: %w", bucket.ErrIntegrity)
		}
		return header{}, err
	}
	return decodeHeader(b[:])
}

// complete asks for what isn't known of an object, besides its segments.
func (s *Bucket) complete(ctx context.Context, stored string, o object) (object, error) {
	if o.sealedBytes == 0 {
		info, err := s.below.Stat(ctx, stored)
		if err != nil {
			return object{}, err
		}
		if _, ok := plainBytesOf(info.Bytes); !ok {
			return object{}, lengthError(info.Bytes)
		}
		o.sealedBytes = info.Bytes
	}
	if o.header == (header{}) {
		h, err := s.fetchHeader(ctx, stored)
		if err != nil {
			return object{}, err
		}
		o.header = h
	}
	return o, nil
}

// readNearEnd reads a range of an object of known size. That a range ends beyond the object is believed only of the last
// segment itself: an object that was cut at a segment's boundary looks whole but for that.
func (s *Bucket) readNearEnd(ctx context.Context, stored string, o object, dst []byte, offset int64) error {
	plainBytes, _ := plainBytesOf(o.sealedBytes)
	beyond := offset+int64(len(dst)) > plainBytes
	want := dst
	if beyond || len(dst) == 0 {
		offset, want = max(plainBytes-1, 0), make([]byte, min(plainBytes, 1))
	}
	first, end := coveringSegments(offset, len(want))
	from := headerBytes + first*sealedSegBytes
	covering := make([]byte, min(o.sealedBytes-from, (end-first)*sealedSegBytes))
	if err := s.below.GetRange(ctx, stored, covering, from); err != nil {
		if errors.Is(err, bucket.ErrShort) { // it had this size a moment ago
			err = fmt.Errorf("it ended before byte %d: %w", from+int64(len(covering)), bucket.ErrIntegrity)
		}
		return err
	}
	if err := s.openRange(stored, o.header, segmentsOf(plainBytes), covering, want, offset); err != nil {
		return err
	}
	s.salts.put(stored, o)
	if beyond {
		return fmt.Errorf("it has %d bytes: %w", plainBytes, bucket.ErrShort)
	}
	return nil
}

// coveringSegments are those from first to before end that hold a range. An empty range has the one it lies in.
func coveringSegments(offset int64, dstBytes int) (first, end int64) {
	first = offset / segmentBytes
	end = max(first+1, (offset+int64(dstBytes)+segmentBytes-1)/segmentBytes)
	return first, end
}

// openRange opens the covering segments and copies from them what dst wants. segments is how many the object has; 0: not
// known, and then the last covering one may be the last of all.
func (s *Bucket) openRange(stored string, h header, segments int64, covering, dst []byte, offset int64) error {
	aead := s.keys.objectAEAD(h, stored)
	plain := make([]byte, 0, segmentBytes)
	done := 0
	for i := offset / segmentBytes; len(covering) > 0; i++ {
		sealed := covering[:min(len(covering), sealedSegBytes)]
		covering = covering[len(sealed):]
		var err error
		if segments == 0 && len(covering) == 0 {
			plain, err = openEither(aead, plain[:0], sealed, i)
		} else {
			plain, err = openSegment(aead, plain[:0], sealed, i, i == segments-1)
		}
		if err != nil {
			return err
		}
		skip := max(offset-i*segmentBytes, 0)
		done += copy(dst[done:], plain[min(skip, int64(len(plain))):])
	}
	if done < len(dst) {
		return fmt.Errorf("its segments end %d bytes early: %w", len(dst)-done, bucket.ErrIntegrity)
	}
	return nil
}

// openEither opens a segment of which it isn't known whether it is the last. dst doesn't share memory with sealed: a try
// that fails clears dst.
func openEither(aead cipher.AEAD, dst, sealed []byte, segment int64) ([]byte, error) {
	plain, err := openSegment(aead, dst, sealed, segment, false)
	if err != nil {
		plain, err = openSegment(aead, dst, sealed, segment, true)
	}
	return plain, err
}
