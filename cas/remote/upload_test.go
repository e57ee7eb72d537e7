package remote_test

import (
	"testing"

	"flash/cas"
	"flash/cas/remote"
)

func TestWhatOneHostUploadsAnotherReads(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 5, 200)
	a := mustOpen(t, remote.Config{Bucket: b})
	if st := mustUpload(t, a, packs); st.NewPacks != 5 || st.NewBytes == 0 {
		t.Errorf("%+v", st)
	}
	for name, dir := range map[string]string{"cached": t.TempDir(), "not cached": ""} {
		t.Run(name, func(t *testing.T) {
			other := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
			if other.Has([]cas.Hash{packs[0].chunks[0].Hash})[0] {
				t.Error("known before the first Refresh")
			}
			mustRead(t, other, packs)
			mustRefresh(t, other)
			if !other.Has([]cas.Hash{packs[0].chunks[0].Hash})[0] || other.Has([]cas.Hash{{1}})[0] {
				t.Error("Has is wrong")
			}
		})
	}
}

func TestSecondUploadMovesNothing(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 3, 100)
	a := mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, a, packs)
	before, _ := b.count()
	if st := mustUpload(t, a, packs); st != (remote.UploadStats{Packs: 3}) {
		t.Errorf("%+v", st)
	}
	if after, _ := b.count(); after != before {
		t.Errorf("%d requests", after-before)
	}
}
