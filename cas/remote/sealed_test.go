package remote_test

import (
	"bytes"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/bucket/seal"
	"flash/cas/remote"
)

// sealed wraps a bucket: it stores other keys than it is asked for, and lists those it stores.
func sealed(t testing.TB, below bucket.Bucket) bucket.Bucket {
	t.Helper()
	text, err := seal.NewKeyFile(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.KeysFromExport(text)
	if err != nil {
		t.Fatal(err)
	}
	return seal.Wrap(below, keys)
}

func TestKeysAreOnlyWhatTheBucketListsThemAs(t *testing.T) {
	below := newBucket()
	b := sealed(t, below)
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
	if n := len(below.keys("packs/")); n != 78 {
		t.Errorf("%d pack objects", n)
	}
	if n := len(below.keys("catalog/")); n > 3 {
		t.Errorf("%d catalogues after a merge", n)
	}
}
