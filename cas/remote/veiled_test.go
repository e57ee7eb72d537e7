package remote_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/remote"
)

// veiled is a bucket that lists other keys than were put, and takes both, as an encrypted one does.
type veiled struct{ *memoryBucket }

func veil(key string) string {
	at := strings.LastIndexByte(key, '/') + 1
	if strings.HasPrefix(key[at:], "=") {
		return key
	}
	return fmt.Sprintf("%s=%x", key[:at], sha256.Sum256([]byte(key)))
}

func (v veiled) Get(ctx context.Context, key string, limit int64) ([]byte, bucket.Version, error) {
	return v.memoryBucket.Get(ctx, veil(key), limit)
}

func (v veiled) GetRange(ctx context.Context, key string, dst []byte, offset int64) error {
	return v.memoryBucket.GetRange(ctx, veil(key), dst, offset)
}

func (v veiled) Put(ctx context.Context, key string, r io.ReaderAt, size int64, c bucket.Condition) (bucket.Version, error) {
	return v.memoryBucket.Put(ctx, veil(key), r, size, c)
}

func (v veiled) Stat(ctx context.Context, key string) (bucket.Info, error) {
	return v.memoryBucket.Stat(ctx, veil(key))
}

func (v veiled) Delete(ctx context.Context, key string) error {
	return v.memoryBucket.Delete(ctx, veil(key))
}

func TestKeysAreOnlyWhatTheBucketListsThemAs(t *testing.T) {
	b := veiled{newBucket()}
	packs := somePacks(t, 1, 80, 4)
	dir := t.TempDir()
	a, other := mustOpen(t, remote.Config{Bucket: b}), mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
	for _, p := range packs[:70] {
		mustUpload(t, a, []made{p})
	}
	mustRefresh(t, a) // its own catalogues, under other keys
	mustRefresh(t, a)
	if n := a.Stats(); n.Catalogues != 70 || n.Packs != 70 {
		t.Errorf("%+v", n)
	}
	mustRead(t, other, packs[:70])
	mustUpload(t, other, packs[70:])
	if _, err := a.Drop(t.Context(), []cas.PackID{packs[3].ID, packs[75].ID}); err != nil {
		t.Fatal(err)
	}
	kept := append(append(append([]made{}, packs[:3]...), packs[4:75]...), packs[76:]...)
	for _, r := range []*remote.Remote{a, other, mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})} {
		mustRead(t, r, kept)
		mustRefresh(t, r)
		if n := len(r.Packs()); n != 78 {
			t.Errorf("%d packs", n)
		}
	}
	if n := len(b.keys("packs/")); n != 78 {
		t.Errorf("%d pack objects", n)
	}
	if n := len(b.keys("catalog/")); n > 3 {
		t.Errorf("%d catalogues after a merge", n)
	}
}
