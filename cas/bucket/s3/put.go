package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// maxPutBytes is what S3 takes in one PUT.
const maxPutBytes = 5 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sums are an object's checksums, as S3 writes them.
type sums struct {
	crc string // base64 of CRC-32C, big endian
	md5 []byte // nil: not computed
}

// Put writes an object with one PUT.
func (b *Bucket) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	if err := errors.Join(bucket.CheckKey(key), bucket.CheckCondition(c)); err != nil {
		return "", err
	}
	if size < 0 || size > maxPutBytes {
		return "", fmt.Errorf("put %s: %w: %d bytes, %d at most", b.at(key), bucket.ErrTooLarge, size, int64(maxPutBytes))
	}
	source := &source{r: r}
	defer source.shut()
	sent, err := source.sums(ctx, size, !b.knowsCRC.Load())
	if err != nil {
		return "", fmt.Errorf("put %s: %w", b.at(key), err)
	}
	var version bucket.Version
	again := false
	err = b.try(ctx, "put", key, func(ctx context.Context) error {
		if again && c != (bucket.Condition{}) {
			var settled bool
			if version, settled, err = b.settled(ctx, key, source, size, c); settled || err != nil {
				return err
			}
		}
		again = true
		version, err = b.putOnce(ctx, key, source, size, c, sent)
		if isPrecondition(err, c) {
			version, err = b.alreadyThere(ctx, key, source, size)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return version, nil
}

func (b *Bucket) putOnce(ctx context.Context, key string, source *source, size int64, c bucket.Condition, sent sums) (bucket.Version, error) {
	o := minio.PutObjectOptions{
		ContentType:          "application/octet-stream",
		DisableContentSha256: true, // the checksums below protect the bytes, and chunked signatures cost a pass of SHA-256
		UserMetadata:         map[string]string{"x-amz-checksum-crc32c": sent.crc},
	}
	if c.Absent {
		o.SetMatchETagExcept("*")
	}
	if c.Match != "" {
		o.SetMatchETag(string(c.Match))
	}
	var contentMD5 string
	if sent.md5 != nil {
		contentMD5 = base64.StdEncoding.EncodeToString(sent.md5)
	}
	body := source.body(ctx, size)
	info, err := b.core.PutObject(ctx, b.config.Bucket, b.prefix+key, body, size, contentMD5, "", o)
	body.shut() // before its error is looked at
	if err != nil {
		if body.err != nil {
			return "", body.err
		}
		return "", err
	}
	b.exists.Store(true)
	switch info.ChecksumCRC32C {
	case sent.crc:
		b.knowsCRC.Store(true)
	case "": // it may know MD5 only, which it was sent
	default:
		return "", fmt.Errorf("%w: the server has received bytes of CRC-32C %s, not %s", errDamaged, info.ChecksumCRC32C, sent.crc)
	}
	if sent.md5 != nil && info.ETag == hex.EncodeToString(sent.md5) {
		b.etagsAreMD5s.Store(true)
	}
	if info.ETag == "" {
		return "", fmt.Errorf("%w: the answer to a put has no ETag", bucket.ErrUnsupported)
	}
	return bucket.Version(info.ETag), nil
}

// isPrecondition: the condition doesn't hold. Amazon says 404 to a match on an object that is gone.
func isPrecondition(err error, c bucket.Condition) bool {
	var answer minio.ErrorResponse
	if c == (bucket.Condition{}) || !errors.As(err, &answer) {
		return false
	}
	return answer.Code == "PreconditionFailed" || answer.StatusCode == http.StatusPreconditionFailed || (c.Match != "" && answer.Code == "NoSuchKey")
}

// settled looks before a conditional put is tried again: where the condition doesn't hold (any more), the object says how it
// ended, and the bytes needn't be sent again. Some servers answer 412 and close the connection while these are on their way,
// so that the answer never arrives, however often it is tried.
func (b *Bucket) settled(ctx context.Context, key string, source *source, size int64, c bucket.Condition) (version bucket.Version, settled bool, err error) {
	info, err := b.core.StatObject(ctx, b.config.Bucket, b.prefix+key, minio.StatObjectOptions{})
	if err != nil && !isNotFound(err) {
		return "", false, err
	}
	if bucket.Version(info.ETag) == c.Match { // both "" where it must be absent, and is
		return "", false, nil
	}
	version, err = b.alreadyThere(ctx, key, source, size)
	return version, true, err
}

// alreadyThere is the answer to a put whose condition failed: it succeeded if it was this one that wrote the object, in a try
// whose answer was lost.
func (b *Bucket) alreadyThere(ctx context.Context, key string, source *source, size int64) (bucket.Version, error) {
	body, info, _, err := b.core.GetObject(ctx, b.config.Bucket, b.prefix+key, minio.GetObjectOptions{})
	if isNotFound(err) {
		return "", fmt.Errorf("%w: it is gone", bucket.ErrCondition)
	}
	if err != nil {
		return "", err
	}
	defer body.Close()
	other := fmt.Errorf("%w: it is at version %s", bucket.ErrCondition, info.ETag)
	if info.Size != size {
		return "", other
	}
	if size > 1<<20 && looksLikeMD5(info.ETag) { // saves reading it
		s, err := source.sums(ctx, size, true)
		if err != nil {
			return "", err
		}
		if hex.EncodeToString(s.md5) == info.ETag {
			return bucket.Version(info.ETag), nil
		}
	}
	mine := source.body(ctx, size)
	defer mine.shut()
	same, err := sameBytes(body, mine)
	if err != nil {
		return "", err
	}
	if !same {
		return "", other
	}
	return bucket.Version(info.ETag), nil
}

func sameBytes(x, y io.Reader) (bool, error) {
	var bufX, bufY [32 << 10]byte
	for {
		n, errX := io.ReadFull(x, bufX[:])
		if errX != nil && errX != io.EOF && errX != io.ErrUnexpectedEOF {
			return false, errX
		}
		m, errY := io.ReadFull(y, bufY[:])
		if errY != nil && errY != io.EOF && errY != io.ErrUnexpectedEOF {
			return false, errY
		}
		if !bytes.Equal(bufX[:n], bufY[:m]) {
			return false, nil
		}
		if n < len(bufX) {
			return true, nil
		}
	}
}

func looksLikeMD5(etag string) bool {
	return len(etag) == 2*md5.Size && strings.Trim(etag, "0123456789abcdef") == ""
}

// sourceError is a failure of what a put reads from, not of the bucket.
type sourceError struct{ err error }

func (s *sourceError) Error() string { return "read what is to be put: " + s.err.Error() }
func (s *sourceError) Unwrap() error { return s.err }

// source guards what a put reads from: connections that were given up may read on for a while, but not after shut.
type source struct {
	mu   sync.RWMutex // held for reading while the source is read, for writing by shut
	r    io.ReaderAt
	gone bool
}

func (s *source) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

func (s *source) sums(ctx context.Context, size int64, withMD5 bool) (sums, error) {
	crc := crc32.New(castagnoli)
	var to io.Writer = crc
	var m hash.Hash
	if withMD5 {
		m = md5.New()
		to = io.MultiWriter(crc, m)
	}
	body := s.body(ctx, size)
	if _, err := io.CopyBuffer(to, body, make([]byte, min(size+1, 256<<10))); err != nil {
		return sums{}, err
	}
	v := sums{crc: base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc.Sum32()))}
	if m != nil {
		v.md5 = m.Sum(nil)
	}
	return v, nil
}

// body reads the source once. A source that is too short is an error.
func (s *source) body(ctx context.Context, size int64) *body {
	return &body{s: s, ctx: ctx, size: size}
}

type body struct {
	s      *source
	ctx    context.Context
	at     int64
	size   int64
	closed bool
	err    error // the source's, where it was the reason
}

// shut ends the reading of one try.
func (b *body) shut() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.closed = true
}

func (b *body) Read(p []byte) (int, error) {
	b.s.mu.RLock()
	defer b.s.mu.RUnlock()
	if b.s.gone || b.closed {
		return 0, errors.New("the put has ended")
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.at == b.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.size-b.at)]
	n, err := b.s.r.ReadAt(p, b.at)
	b.at += int64(n)
	if n == len(p) {
		return n, nil
	}
	if err == io.EOF {
		err = fmt.Errorf("it ends after %d of %d bytes: %w", b.at, b.size, io.ErrUnexpectedEOF)
	}
	b.err = &sourceError{err}
	return n, b.err
}
