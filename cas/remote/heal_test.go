package remote_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"flash/cas"
	"flash/cas/pack"
	"flash/cas/remote"
)

func TestDamagedObjectsAreReplaced(t *testing.T) {
	packs := somePacks(t, 1, 3, 60)
	b := uploaded(t, packs)
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: t.TempDir()})
	b.change("packs/"+pack.FileName(packs[0].ContentHash), func([]byte) []byte { return nil })
	b.change("packs/"+pack.FileName(packs[1].ContentHash), func(p []byte) []byte { p[300] ^= 1; return p })
	if _, found := verify(t, r, 1); len(found) != 2 {
		t.Errorf("%+v", found)
	}
	if st := mustUpload(t, r, packs); st.NewPacks != 0 {
		t.Errorf("an upload trusts the catalogue: %+v", st)
	}
	for _, p := range packs[:2] {
		if err := r.Replace(t.Context(), p.PackSource); err != nil {
			t.Error(err)
		}
	}
	if _, found := verify(t, r, 1); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	mustRead(t, r, packs)
	if n := len(b.keys("catalog/")); n != 1 {
		t.Errorf("%d catalogues", n)
	}
	other := somePacks(t, 2, 1, 5)[0]
	if err := r.Replace(t.Context(), other.PackSource); err != nil {
		t.Error(err)
	}
	mustRead(t, mustOpen(t, remote.Config{Bucket: b}), []made{other})
}

func TestCatalogueIsMadeAgainFromThePacks(t *testing.T) {
	packs := somePacks(t, 1, 5, 40)
	plain := newBucket()
	for name, open := range map[string]func() (*memoryBucket, func() *remote.Remote){
		"plain": func() (*memoryBucket, func() *remote.Remote) {
			return plain, func() *remote.Remote { return mustOpen(t, remote.Config{Bucket: plain}) }
		},
		"sealed": func() (*memoryBucket, func() *remote.Remote) {
			below := newBucket()
			b := sealed(t, below)
			return below, func() *remote.Remote { return mustOpen(t, remote.Config{Bucket: b}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, reopen := open()
			a := reopen()
			mustUpload(t, a, packs[:2])
			bad := b.keys("catalog/")[0]
			mustUpload(t, reopen(), packs[1:4])
			b.change(bad, func(p []byte) []byte { p[len(p)/2] ^= 1; return p })
			r := reopen()
			st, err := r.Recatalogue(t.Context())
			if err != nil || st.Packs != 4 || st.Named != 1 || len(st.Removed) != 1 || st.Removed[0] != bad || len(st.Damages) > 0 {
				t.Errorf("%+v, %v", st, err)
			}
			mustRead(t, r, packs[:4])
			mustRead(t, reopen(), packs[:4])

			// One of the same packs has the same name: it is put right.
			for _, key := range b.keys("catalog/") {
				b.change(key, func(p []byte) []byte { p[len(p)/2] ^= 1; return p })
			}
			if st, err := reopen().Recatalogue(t.Context()); err != nil || st.Named != 4 {
				t.Errorf("%+v, %v", st, err)
			}
			mustRead(t, reopen(), packs[:4])

			// All catalogues are gone, and one pack isn't what it was.
			for _, key := range b.keys("catalog/") {
				b.change(key, func([]byte) []byte { return nil })
			}
			spoilt := b.keys("packs/")[0]
			b.change(spoilt, func(p []byte) []byte { p[len(p)/3] ^= 1; return p })
			st, err = reopen().Recatalogue(t.Context())
			if err != nil || st.Named != 3 || len(st.Damages) != 1 || st.Damages[0].Pack != spoilt {
				t.Errorf("%+v, %v", st, err)
			}
			b.change(spoilt, func([]byte) []byte { return nil })
			mustBeWholeAnyKey(t, reopen(), 3)
		})
	}
}

func mustBeWholeAnyKey(t *testing.T, r *remote.Remote, packs int) {
	t.Helper()
	if st, found := verify(t, r, 1); st.Packs != packs || len(found) > 0 {
		t.Errorf("%+v, %+v", st, found)
	}
}

// What a newer flash has written isn't damage, and stays.
func TestCatalogueOfTheFutureIsNotRemoved(t *testing.T) {
	packs := somePacks(t, 1, 1, 10)
	b := uploaded(t, packs)
	key := b.keys("catalog/")[0]
	b.change(key, func(p []byte) []byte {
		p[8] = 2
		binary.LittleEndian.PutUint32(p[60:], crc32.Checksum(p[:60], crc32.MakeTable(crc32.Castagnoli)))
		return p
	})
	r := mustOpen(t, remote.Config{Bucket: b})
	if _, err := r.Recatalogue(t.Context()); !errors.Is(err, remote.ErrCatalogue) {
		t.Errorf("%v", err)
	}
	if len(b.keys("catalog/")) != 1 {
		t.Error("it is gone")
	}
	var none cas.Hash
	if err := r.RemoveObjects(t.Context(), []cas.Hash{none, packs[0].ContentHash}); !errors.Is(err, remote.ErrCatalogue) || len(b.keys("packs/")) != 1 {
		t.Errorf("objects are removed though nobody knows what names them: %v", err)
	}
}

func TestObjectThatIsNamedIsNotRemoved(t *testing.T) {
	packs := somePacks(t, 1, 2, 10)
	b := uploaded(t, packs[:1])
	left := "packs/" + pack.FileName(packs[1].ContentHash) // of an upload that didn't end
	b.change(left, func([]byte) []byte { return packs[1].bytes })
	r := mustOpen(t, remote.Config{Bucket: b}) // it hasn't read the catalogue yet
	if err := r.RemoveObjects(t.Context(), []cas.Hash{packs[0].ContentHash, packs[1].ContentHash}); err != nil {
		t.Error(err)
	}
	if keys := b.keys("packs/"); len(keys) != 1 || keys[0] == left {
		t.Errorf("left: %q", keys)
	}
}
