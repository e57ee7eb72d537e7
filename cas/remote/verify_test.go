package remote_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/bucket/dir"
	"flash/cas/pack"
	"flash/cas/remote"
)

func spoilCatalogues(t testing.TB, cacheDir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cacheDir, "catalog", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cached catalogues, %v", len(files), err)
	}
	for _, f := range files {
		p, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		p[len(p)/2] ^= 1
		if err := os.WriteFile(f, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t testing.TB, r *remote.Remote, fraction float64) (cas.VerifyStats, []cas.Damage) {
	t.Helper()
	var found []cas.Damage
	st, err := r.Verify(t.Context(), fraction, func(d cas.Damage) { found = append(found, d) })
	if err != nil {
		t.Fatal(err)
	}
	return st, found
}

func TestVerifyFindsWhatIsDamagedAndMissing(t *testing.T) {
	packs := somePacks(t, 1, 4, 100)
	b := uploaded(t, packs)
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: t.TempDir()})
	mustRead(t, r, packs) // what is cached hides nothing
	st, found := verify(t, r, 1)
	if len(found) > 0 || st.Packs != 4 || st.Records != 400 || st.Bytes < packs[0].Bytes*3 {
		t.Errorf("%+v, %v", st, found)
	}
	if st, _ := verify(t, r, 0.3); st.Packs < 1 || st.Packs > 2 {
		t.Errorf("a third: %+v", st)
	}
	key := func(i int) string { return "packs/" + pack.FileName(packs[i].ContentHash) }
	b.change(key(0), func(p []byte) []byte { p[packs[0].refs[9].Hint.Offset+55] ^= 1; return p })
	b.change(key(1), func([]byte) []byte { return nil })
	b.change(key(2), func(p []byte) []byte { return p[:len(p)-1] })
	st, found = verify(t, r, 1)
	if st.Damages != int64(len(found)) || len(found) != 3 {
		t.Errorf("%+v, %+v", st, found)
	}
	byPack := map[string]cas.Damage{}
	for _, d := range found {
		byPack[d.Pack] = d
	}
	if d := byPack[pack.FileName(packs[0].ContentHash)]; d.Hash != packs[0].chunks[9].Hash || !errors.Is(d.Err, pack.ErrDamaged) {
		t.Errorf("flipped: %+v", d)
	}
	if d := byPack[pack.FileName(packs[1].ContentHash)]; !errors.Is(d.Err, bucket.ErrNotFound) {
		t.Errorf("removed: %+v", d)
	}
	if d := byPack[pack.FileName(packs[2].ContentHash)]; !errors.Is(d.Err, pack.ErrDamaged) {
		t.Errorf("cut: %+v", d)
	}
	b.setFault(func(_ int, verb, _ string, _ bool) error {
		if verb == "range" {
			return errOutage
		}
		return nil
	})
	if _, err := r.Verify(t.Context(), 1, func(cas.Damage) {}); !errors.Is(err, bucket.ErrUnavailable) {
		t.Errorf("an outage: %v", err)
	}
	if _, err := r.Verify(t.Context(), 0, func(cas.Damage) {}); err == nil {
		t.Error("nothing was to be read, and that was fine")
	}
}

func TestPacksComeBackAsTheyWere(t *testing.T) {
	packs := somePacks(t, 1, 2, 300)
	r := mustOpen(t, remote.Config{Bucket: uploaded(t, packs)})
	mustRefresh(t, r)
	for _, p := range packs {
		s, n, err := r.OpenPack(t.Context(), p.ContentHash)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(s)
		if err != nil || n != p.Bytes || !bytes.Equal(got, p.bytes) {
			t.Errorf("%d bytes, want %d: %v", len(got), p.Bytes, err)
		}
		entries, err := r.PackEntries(t.Context(), p.ID)
		if err != nil || len(entries) != 300 {
			t.Errorf("%d entries: %v", len(entries), err)
		}
	}
	for _, s := range r.Packs() {
		if err := bytesEqual(s); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := r.OpenPack(t.Context(), cas.Hash{1}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := r.PackEntries(t.Context(), cas.PackID{1}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func bytesEqual(s remote.PackSource) error {
	sealed, err := pack.OpenSealed(s.Reader, s.Bytes)
	if err != nil {
		return err
	}
	return sealed.CheckContent()
}

// Hosts upload, read, refresh and collect side by side on one folder. The rule between them is offsite's: what is dropped is
// needed by nobody.
func TestHostsWorkSideBySide(t *testing.T) {
	folder, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	const hosts, rounds = 3, 4
	var wg sync.WaitGroup
	for h := range hosts {
		r := mustOpen(t, remote.Config{Bucket: folder, CacheDir: t.TempDir(), CacheBytes: 8 * remote.WindowBytes, InFlight: 4})
		keep := somePacks(t, uint64(10*h+1), rounds, 30)
		drop := somePacks(t, uint64(10*h+2), rounds, 30)
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(h), 1))
			for i := range rounds {
				if _, err := r.Upload(t.Context(), sources([]made{keep[i], drop[i]}), nil); err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					mustReadOne(t, r, keep[rng.IntN(i+1)], rng)
				}
				if h == 0 { // one collector at a time
					if _, err := r.Drop(t.Context(), []cas.PackID{drop[i].ID}); err != nil {
						t.Error(err)
					}
					if err := r.Merge(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if err := r.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r := mustOpen(t, remote.Config{Bucket: folder})
	if st, found := verify(t, r, 1); len(found) > 0 || st.Packs != hosts*rounds*2-rounds {
		t.Errorf("%+v, %v", st, found)
	}
}

func mustReadOne(t *testing.T, r *remote.Remote, p made, rng *rand.Rand) {
	i := rng.IntN(len(p.refs))
	got, err := r.Get(t.Context(), p.refs[i], nil)
	if err != nil || !bytes.Equal(got, p.chunks[i].Data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	getAll(t, r, p)
}
