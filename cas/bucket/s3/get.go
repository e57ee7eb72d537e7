package s3

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// Get reads a whole object and compares it with its checksum.
func (b *Bucket) Get(ctx context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	if err := bucket.CheckKey(key); err != nil {
		return nil, "", err
	}
	var data []byte
	var version bucket.Version
	err := b.try(ctx, "get", key, func(ctx context.Context) error {
		var o minio.GetObjectOptions
		o.Set("x-amz-checksum-mode", "ENABLED")
		body, info, header, err := b.core.GetObject(ctx, b.config.Bucket, b.prefix+key, o)
		if err != nil {
			return err
		}
		defer body.Close()
		if info.Size > limit {
			return fmt.Errorf("%w: %d bytes, %d at most", bucket.ErrTooLarge, info.Size, limit)
		}
		if info.Size < 0 {
			return fmt.Errorf("%w: the answer to a get doesn't say how long the object is", bucket.ErrUnsupported)
		}
		if int64(cap(data)) < info.Size {
			data = make([]byte, info.Size)
		}
		data = data[:info.Size]
		if _, err := io.ReadFull(body, data); err != nil {
			return fmt.Errorf("read the object's %d bytes: %w", info.Size, err)
		}
		version = bucket.Version(info.ETag)
		return b.verify(data, info.ETag, header)
	})
	if err != nil {
		return nil, "", err
	}
	b.exists.Store(true)
	return data, version, nil
}

// verify compares a whole object with what the server says of it, as far as that can be trusted.
func (b *Bucket) verify(data []byte, etag string, header http.Header) error {
	if want := header.Get("x-amz-checksum-crc32c"); want != "" && !strings.Contains(want, "-") { // "-" is of multiparts
		crc := binary.BigEndian.AppendUint32(nil, crc32.Checksum(data, castagnoli))
		if got := base64.StdEncoding.EncodeToString(crc); got != want {
			return fmt.Errorf("%w: CRC-32C %s was read, %s was written", errDamaged, got, want)
		}
		return nil
	}
	// An object encrypted by a key service has an ETag that looks like an MD5 and is none.
	if !looksLikeMD5(etag) || strings.HasPrefix(header.Get("x-amz-server-side-encryption"), "aws:kms") {
		return nil
	}
	sum := md5.Sum(data)
	got := hex.EncodeToString(sum[:])
	if got == etag {
		b.etagsAreMD5s.Store(true)
		return nil
	}
	if b.etagsAreMD5s.Load() {
		return fmt.Errorf("%w: MD5 %s was read, %s was written", errDamaged, got, etag)
	}
	return nil
}

// GetRange fills dst from offset on.
func (b *Bucket) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	if offset < 0 {
		return fmt.Errorf("get %s: the offset %d is negative", b.at(key), offset)
	}
	if len(dst) == 0 { // S3 has no empty range
		info, err := b.Stat(ctx, key)
		if err == nil && info.Bytes < offset {
			err = fmt.Errorf("get %s: %w: it has %d bytes, not %d", b.at(key), bucket.ErrShort, info.Bytes, offset)
		}
		return err
	}
	return b.try(ctx, "get", key, func(ctx context.Context) error {
		var o minio.GetObjectOptions
		if err := o.SetRange(offset, offset+int64(len(dst))-1); err != nil {
			return err
		}
		body, info, header, err := b.core.GetObject(ctx, b.config.Bucket, b.prefix+key, o)
		if err != nil {
			return err
		}
		defer body.Close()
		var first, last, total int64
		if _, err := fmt.Sscanf(header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); err != nil {
			return wholeAnswer(len(dst), offset, info.Size)
		}
		if total < offset+int64(len(dst)) {
			return fmt.Errorf("%w: %d bytes at %d of %d", bucket.ErrShort, len(dst), offset, total)
		}
		if first != offset || last-first+1 != int64(len(dst)) {
			return fmt.Errorf("%w: %d bytes at %d were asked for, %s came", errDamaged, len(dst), offset, header.Get("Content-Range"))
		}
		if _, err := io.ReadFull(body, dst); err != nil {
			return fmt.Errorf("read %d bytes at %d: %w", len(dst), offset, err)
		}
		return nil
	})
}

// wholeAnswer judges an answer to a range that is none: an object that is too short for it, or a server that has no ranges.
func wholeAnswer(wanted int, offset, size int64) error {
	if size >= 0 && size-offset < int64(wanted) {
		return fmt.Errorf("%w: %d bytes at %d of %d", bucket.ErrShort, wanted, offset, size)
	}
	return fmt.Errorf("%w: a range was asked for and the whole object came", bucket.ErrUnsupported)
}

// Stat says what there is.
func (b *Bucket) Stat(ctx context.Context, key string) (bucket.Info, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Info{}, err
	}
	var found bucket.Info
	err := b.try(ctx, "stat", key, func(ctx context.Context) error {
		info, err := b.core.StatObject(ctx, b.config.Bucket, b.prefix+key, minio.StatObjectOptions{})
		var answer minio.ErrorResponse
		if errors.As(err, &answer) {
			if err := b.checkBucket(ctx); err != nil {
				return err
			}
		}
		found = bucket.Info{Key: key, Bytes: info.Size, Version: bucket.Version(info.ETag), Modified: info.LastModified}
		return err
	})
	if err != nil {
		return bucket.Info{}, err
	}
	return found, nil
}

// checkBucket asks, until it was answered well once, for something whose answer has a body: refusals to HEAD have none, and so
// don't tell an absent object from an absent bucket or a wrong key.
func (b *Bucket) checkBucket(ctx context.Context) error {
	if b.exists.Load() {
		return nil
	}
	noOwner := false
	for o := range b.core.ListObjectsIter(ctx, b.config.Bucket, minio.ListObjectsOptions{Prefix: b.prefix, MaxKeys: 1, Recursive: true, FetchOwner: &noOwner}) {
		if o.Err != nil {
			return o.Err
		}
		break
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.exists.Store(true)
	return nil
}

// Delete removes an object.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	return b.try(ctx, "delete", key, func(ctx context.Context) error {
		err := b.core.RemoveObject(ctx, b.config.Bucket, b.prefix+key, minio.RemoveObjectOptions{})
		if isNotFound(err) {
			return nil
		}
		return err
	})
}

func isNotFound(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && answer.Code == "NoSuchKey"
}
