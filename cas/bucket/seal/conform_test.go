package seal

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/dir"
	"flash/cas/bucket/s3"
)

// TestASealedFolderKeepsABucketsPromises, but for one: a list shows stored keys. remembering translates them back, so that
// everything else about lists is held to as well.
func TestASealedFolderKeepsABucketsPromises(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket {
		d, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return remember(d)
	})
}

// TestASealedS3BucketGetsOverFaults: every try sends the same bytes, so that a lost answer is told from another's write, and
// bytes that were damaged on the way are asked for again, also where the protocol has no checksum: in ranges.
func TestASealedS3BucketGetsOverFaults(t *testing.T) {
	server := buckettest.ServerFor(t)
	var prefixes atomic.Int64
	t.Run("Faults", func(t *testing.T) { // ends with those that run in parallel, before the server does
		buckettest.RunFaults(t, server.Endpoint, func(t *testing.T, p *buckettest.Proxy) bucket.Bucket {
			b, err := s3.New(s3.Config{
				Endpoint: p.Endpoint, Bucket: server.Bucket, Prefix: fmt.Sprintf("sealed/%d", prefixes.Add(1)),
				AccessKey: server.AccessKey, SecretKey: s3.Secret(server.SecretKey), BackOff: time.Millisecond, BackOffCap: 5 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return remember(b)
		})
	})
}

func remember(below bucket.Bucket) bucket.Bucket {
	return &remembering{Bucket: Wrap(below, testKeys(7)), plain: map[string]string{}}
}

// remembering knows the plain keys of what was put.
type remembering struct {
	*Bucket
	mu    sync.Mutex // guards plain
	plain map[string]string
}

func (r *remembering) Put(ctx context.Context, key string, data io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	r.mu.Lock()
	r.plain[r.ListedKey(key)] = key
	r.mu.Unlock()
	return r.Bucket.Put(ctx, key, data, size, c)
}

func (r *remembering) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		var infos []bucket.Info
		folders, _ := splitKey(prefix)
		for info, err := range r.Bucket.List(ctx, folders) {
			if err != nil {
				yield(info, err)
				return
			}
			r.mu.Lock()
			info.Key = r.plain[info.Key]
			r.mu.Unlock()
			if strings.HasPrefix(info.Key, prefix) {
				infos = append(infos, info)
			}
		}
		slices.SortFunc(infos, func(a, b bucket.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}
