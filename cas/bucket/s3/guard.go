package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// RefusesDamage puts a text with the checksums of another one, and is nil if the server refuses it. A server that doesn't
// know CRC-32C, and doesn't say that it does, is sent MD5s (Put) and may check these.
func (b *Bucket) RefusesDamage(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	const sent, meant = "the bytes that arrive", "the bytes that were meant"
	sums, err := (&source{r: strings.NewReader(meant)}).sums(ctx, int64(len(meant)), true)
	if err != nil {
		return err
	}
	var saysItKnowsCRC bool
	put := func(contentMD5 string, header map[string]string) error {
		return b.try(ctx, "put", key, func(ctx context.Context) error {
			info, err := b.core.PutObject(ctx, b.config.Bucket, b.prefix+key, strings.NewReader(sent), int64(len(sent)), contentMD5, "",
				minio.PutObjectOptions{DisableContentSha256: true, UserMetadata: header})
			if err != nil && errors.Is(b.classify(err).kind, bucket.ErrIntegrity) {
				return errRefused
			}
			saysItKnowsCRC = saysItKnowsCRC || info.ChecksumCRC32C != ""
			return err
		})
	}
	err = put("", map[string]string{"x-amz-checksum-crc32c": sums.crc})
	switch {
	case errors.Is(err, errRefused):
		return nil
	case err != nil:
		return err
	case saysItKnowsCRC:
		return errors.New("bytes were stored whose CRC-32C isn't the one that came with them, and was returned")
	}
	switch err := put(base64.StdEncoding.EncodeToString(sums.md5), nil); {
	case errors.Is(err, errRefused):
		return nil
	case err != nil:
		return err
	}
	return errors.New("bytes were stored whose CRC-32C and MD5 aren't the ones that came with them")
}

var errRefused = errors.New("the damaged put was refused")

var (
	_ bucket.Guarded = (*Bucket)(nil)
	_ bucket.Skewed  = (*Bucket)(nil)
)
