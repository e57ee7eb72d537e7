package s3

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"flash/cas/bucket"
)

// List asks page by page (1,000 keys each), and goes on behind the last key after a page that failed.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[bucket.Info, error] {
	return func(yield func(bucket.Info, error) bool) {
		if err := bucket.CheckPrefix(prefix); err != nil {
			yield(bucket.Info{}, err)
			return
		}
		l := &lister{b: b, prefix: prefix, yield: yield}
		for !l.done {
			before := l.last
			err := b.try(ctx, "list", prefix, func(tryCtx context.Context) error {
				if err := l.list(tryCtx); err != nil && l.last == before {
					return err
				}
				return ctx.Err() // it got further: the tries are counted from here
			})
			if err != nil {
				if !l.done {
					yield(bucket.Info{}, err)
				}
				return
			}
		}
	}
}

type lister struct {
	b      *Bucket
	prefix string
	yield  func(bucket.Info, error) bool
	last   string // the last key that was seen, with the bucket's prefix
	done   bool   // all were seen, or the caller has seen enough
}

// list yields what is behind the last key until the end, a failure, or the caller has seen enough.
func (l *lister) list(ctx context.Context) error {
	noOwner := false
	objects := l.b.core.ListObjectsIter(ctx, l.b.config.Bucket, minio.ListObjectsOptions{
		Prefix: l.b.prefix + l.prefix, StartAfter: l.last, Recursive: true, FetchOwner: &noOwner,
	})
	for o := range objects {
		if o.Err != nil {
			return o.Err
		}
		if o.Key <= l.last {
			return fmt.Errorf("%w: a list isn't sorted: %q comes after %q", bucket.ErrUnsupported, o.Key, l.last)
		}
		l.last = o.Key
		key, below := strings.CutPrefix(o.Key, l.b.prefix)
		if !below || !strings.HasPrefix(key, l.prefix) || bucket.CheckKey(key) != nil {
			continue // nobody's of ours, as the folders that consoles draw
		}
		if !l.yield(bucket.Info{Key: key, Bytes: o.Size, Version: bucket.Version(o.ETag), Modified: o.LastModified}, nil) {
			l.done = true
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.b.exists.Store(true)
	l.done = true
	return nil
}
