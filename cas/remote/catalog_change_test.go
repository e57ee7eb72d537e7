package remote_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/pack"
	"flash/cas/remote"
)

func TestOtherHostsSeeWhatIsAddedAndDropped(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 6, 50)
	a := mustOpen(t, remote.Config{Bucket: b})
	other := mustOpen(t, remote.Config{Bucket: b, CacheDir: t.TempDir()})
	mustUpload(t, a, packs[:3])
	mustRefresh(t, other)
	mustUpload(t, other, packs[3:])
	mustRead(t, a, packs) // a miss refreshes
	mustRead(t, other, packs)
	freed, err := a.Drop(t.Context(), []cas.PackID{packs[0].ID, packs[4].ID})
	if err != nil || freed != packs[0].Bytes+packs[4].Bytes {
		t.Errorf("%d bytes freed, %v", freed, err)
	}
	kept := []made{packs[1], packs[2], packs[3], packs[5]}
	mustRead(t, a, kept)
	mustRead(t, other, kept)
	mustRefresh(t, other)
	for _, r := range []*remote.Remote{a, other} {
		if _, err := r.Get(t.Context(), packs[4].refs[1], nil); !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("dropped: %v", err)
		}
		if got := r.Has([]cas.Hash{packs[0].chunks[0].Hash, packs[1].chunks[0].Hash}); !slices.Equal(got, []bool{false, true}) {
			t.Errorf("Has: %v", got)
		}
		if n := len(r.Packs()); n != 4 {
			t.Errorf("%d packs", n)
		}
		if got := r.PacksOf(packs[1].chunks[7].Hash); len(got) != 1 || got[0] != packs[1].ID {
			t.Errorf("PacksOf: %x", got)
		}
	}
	mustBeWhole(t, b, "at the end")
	if st := mustUpload(t, other, packs); st.NewPacks != 2 {
		t.Errorf("uploaded again: %+v", st)
	}
}

// A collection elsewhere has moved chunks to another pack: a host with the old catalogue and old hints finds them there.
func TestMovedChunksAreFoundByWhoDoesNotKnow(t *testing.T) {
	b := newBucket()
	old := somePacks(t, 1, 3, 300)
	collector := mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, collector, old)
	for name, dir := range map[string]string{"cached": t.TempDir(), "not cached": ""} {
		t.Run(name, func(t *testing.T) {
			b := b.copy()
			collector := mustOpen(t, remote.Config{Bucket: b})
			reader := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
			mustRefresh(t, reader)
			moved := makePack(t, 99, slices.Concat(old[0].chunks, old[1].chunks, old[2].chunks))
			mustUpload(t, collector, []made{moved})
			if _, err := collector.Drop(t.Context(), []cas.PackID{old[0].ID, old[1].ID, old[2].ID}); err != nil {
				t.Fatal(err)
			}
			b.setFault(nil)
			var refs []cas.Ref
			for _, p := range old {
				refs = append(refs, p.refs...)
			}
			err := reader.GetMany(t.Context(), refs, func(i int, data []byte, err error) error {
				if err == nil && !bytes.Equal(data, moved.chunks[i].Data) {
					err = errors.New("other bytes")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if ops, _ := b.count(); ops > 16 {
				t.Errorf("%d requests for %d stale hints", ops, len(refs))
			}
			mustRead(t, reader, old)
		})
	}
}

// Between the list and the reading of what it lists another host merges: what comes instead is in the next list.
func TestCatalogueThatGoesWhileItIsReadIsFoundElsewhere(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 70, 3)
	a := mustOpen(t, remote.Config{Bucket: b})
	for _, p := range packs {
		mustUpload(t, a, []made{p})
	}
	merged := false
	merge := mustOpen(t, remote.Config{Bucket: b})
	mustRefresh(t, merge)
	b.setFault(func(_ int, verb, key string, _ bool) error {
		if verb == "get" && !merged {
			merged = true
			return merge.Merge(t.Context())
		}
		return nil
	})
	r := mustOpen(t, remote.Config{Bucket: b, InFlight: 1})
	mustRefresh(t, r)
	b.setFault(nil)
	if n := len(b.keys("catalog/")); n != 1 {
		t.Errorf("%d catalogues are left", n)
	}
	if n := len(r.Packs()); n != 70 {
		t.Errorf("%d packs", n)
	}
	mustRead(t, r, packs)
	mustRead(t, a, packs)
}

// One of the old catalogues names all that the merged one does, and so has its name: it stays.
func TestMergedCatalogueThatWasThereBeforeStays(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 66, 2)
	a := mustOpen(t, remote.Config{Bucket: b})
	for _, p := range packs {
		mustUpload(t, a, []made{p})
	}
	mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), packs)
	if err := a.Merge(t.Context()); err != nil || len(b.keys("catalog/")) != 1 {
		t.Errorf("%d catalogues, %v", len(b.keys("catalog/")), err)
	}
	mustRead(t, a, packs[:3])
	mustRead(t, mustOpen(t, remote.Config{Bucket: b}), packs)
}

func TestFewCataloguesAreNotMerged(t *testing.T) {
	b := newBucket()
	a := mustOpen(t, remote.Config{Bucket: b})
	for _, p := range somePacks(t, 1, 10, 3) {
		mustUpload(t, a, []made{p})
	}
	if err := a.Merge(t.Context()); err != nil || len(b.keys("catalog/")) != 10 {
		t.Errorf("%d catalogues, %v", len(b.keys("catalog/")), err)
	}
}

// Somebody names a pack again between the catalogue's change and the removal: it stays.
func TestPackThatIsNamedAgainMeanwhileStays(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 2, 30)
	a := mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, a, packs)
	again := false
	b.setFault(func(_ int, verb, key string, done bool) error {
		if verb == "delete" && strings.HasPrefix(key, "catalog/") && done && !again {
			again = true
			mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), packs[:1])
		}
		return nil
	})
	freed, err := a.Drop(t.Context(), []cas.PackID{packs[0].ID})
	if err != nil || freed != 0 || !again {
		t.Errorf("%d bytes freed, %v", freed, err)
	}
	mustBeWhole(t, b.copy(), "after the drop")
	mustRead(t, a, packs)
}

// The near tier's repair makes a smaller pack under the id of a damaged one.
func TestTwoPacksOfOneIDAreBothRead(t *testing.T) {
	b := newBucket()
	chunks := castest.Chunks(cas.NewHasher(nil), 1, 60)
	whole, smaller := makePack(t, 5, chunks), makePack(t, 5, chunks[20:])
	a := mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, a, []made{whole})
	mustUpload(t, a, []made{smaller})
	mustRead(t, a, []made{whole, smaller})
	if n := len(a.Packs()); n != 2 {
		t.Errorf("%d packs", n)
	}
	b.change("packs/"+pack.FileName(whole.ContentHash), func([]byte) []byte { return nil })
	mustRead(t, a, []made{smaller})
	if freed, err := a.Drop(t.Context(), []cas.PackID{whole.ID}); err != nil || freed != whole.Bytes+smaller.Bytes {
		t.Errorf("%d bytes freed, %v", freed, err)
	}
	if n := len(b.keys("")); n != 0 {
		t.Errorf("left: %q", b.keys(""))
	}
}

func TestDamagedCatalogueIsToldAndHoldsUpNoOther(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 2, 30)
	a := mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, a, packs[:1])
	bad := b.keys("catalog/")[0]
	mustUpload(t, a, packs[1:])
	good := b.objects[bad]
	keys := b.keys("catalog/")
	swapped := b.objects[keys[1-slices.Index(keys, bad)]]
	for name, spoil := range map[string]func(p []byte) []byte{
		"flipped": func(p []byte) []byte { p[100] ^= 1; return p },
		"cut":     func(p []byte) []byte { return p[:50] },
		"another": func([]byte) []byte { return bytes.Clone(swapped) },
		"newer":   func(p []byte) []byte { p[8] = 9; return p },
	} {
		b.change(bad, spoil)
		dir := t.TempDir()
		r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
		if err := r.Refresh(t.Context()); !errors.Is(err, remote.ErrCatalogue) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.Get(t.Context(), packs[1].refs[3], nil); err != nil {
			t.Errorf("%s: the other pack: %v", name, err)
		}
		// Nobody knows what the damaged one names: that is no loss.
		if _, err := r.Get(t.Context(), packs[0].refs[3], nil); !errors.Is(err, remote.ErrCatalogue) || isPermanent(err) {
			t.Errorf("%s: its pack: %v", name, err)
		}
		if _, err := r.Drop(t.Context(), []cas.PackID{packs[1].ID}); !errors.Is(err, remote.ErrCatalogue) {
			t.Errorf("%s: a drop: %v", name, err)
		}
		b.change(bad, func([]byte) []byte { return bytes.Clone(good) })
		mustRead(t, r, packs)
	}
	keyed := mustOpen(t, remote.Config{Bucket: b, Key: &[32]byte{3}})
	if err := keyed.Refresh(t.Context()); !errors.Is(err, remote.ErrWrongKey) {
		t.Errorf("another key: %v", err)
	}
}

func TestDamagedCachedCatalogueIsReadAgain(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 2, 30)
	mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), packs)
	dir := t.TempDir()
	mustRefresh(t, mustOpen(t, remote.Config{Bucket: b, CacheDir: dir}))
	ops, _ := requests(b, func() { mustRefresh(t, mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})) })
	if ops != 1 {
		t.Errorf("%d requests for a list and a cached catalogue", ops)
	}
	spoilCatalogues(t, dir)
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
	mustRefresh(t, r)
	mustRead(t, r, packs)
}

func TestIndexTakesThirtyBytesAnEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many packs")
	}
	b := newBucket()
	r := mustOpen(t, remote.Config{Bucket: b})
	for i := range 40 {
		mustUpload(t, r, somePacks(t, uint64(i), 2, 100))
	}
	st := r.Stats()
	if st.Entries != 8000 || st.IndexBytes > 30*st.Entries || st.Packs != 80 || st.Catalogues != 40 {
		t.Errorf("%+v", st)
	}
	var ids []cas.PackID
	for _, p := range r.Packs()[:70] {
		ids = append(ids, p.ID)
	}
	if _, err := r.Drop(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Entries != 1000 || st.IndexBytes > 30*2*st.Entries || st.Packs != 10 {
		t.Errorf("after most were dropped: %+v", st)
	}
}

// A pack object is named by what it has, so a second host that has the same pack moves nothing but a catalogue.
func TestTwoHostsWithTheSamePackShareIt(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 3, 900)
	x, y := mustOpen(t, remote.Config{Bucket: b}), mustOpen(t, remote.Config{Bucket: b})
	mustUpload(t, x, packs)
	if st := mustUpload(t, y, packs); st.NewPacks != 0 {
		t.Errorf("%+v", st)
	}
	if freed, err := x.Drop(t.Context(), []cas.PackID{packs[1].ID}); err != nil || freed != packs[1].Bytes {
		t.Errorf("%d, %v", freed, err)
	}
	mustBeWhole(t, b, fmt.Sprint(b.keys("")))
	if n := len(b.keys("packs/")); n != 2 {
		t.Errorf("%d packs", n)
	}
}

// A Refresh whose list is older than an upload of the same process doesn't forget what was uploaded.
func TestUploadBesideARefreshIsNotForgotten(t *testing.T) {
	b := newBucket()
	packs := somePacks(t, 1, 2, 20)
	mustUpload(t, mustOpen(t, remote.Config{Bucket: b}), packs[:1])
	r := mustOpen(t, remote.Config{Bucket: b})
	done := false
	b.setFault(func(_ int, verb, _ string, _ bool) error {
		if verb == "get" && !done { // the list was read
			done = true
			mustUpload(t, r, packs[1:])
		}
		return nil
	})
	mustRefresh(t, r)
	if got := r.Has([]cas.Hash{packs[0].chunks[0].Hash, packs[1].chunks[0].Hash}); !done || !slices.Equal(got, []bool{true, true}) {
		t.Errorf("Has: %v", got)
	}
}
