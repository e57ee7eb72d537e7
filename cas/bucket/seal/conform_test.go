package seal

import (
	"cmp"
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/dir"
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
		return &remembering{Bucket: Wrap(d, testKeys(7)), plain: map[string]string{}}
	})
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
