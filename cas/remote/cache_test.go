package remote_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"flash/cas"
	"flash/cas/castest"
	"flash/cas/remote"
)

func TestDamagedWindowIsFetchedAgain(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 400))
	b := uploaded(t, []made{p})
	for name, spoil := range map[string]func(path string) error{
		"other bytes": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{9}, remote.WindowBytes), 0o600) },
		"cut":         func(path string) error { return os.Truncate(path, 10) },
		"removed":     os.Remove,
		"a folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for round := range 2 {
				r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
				getAll(t, r, p)
				files := windowFiles(t, dir)
				if round == 0 && len(files) < 2 {
					t.Fatalf("%d windows are cached", len(files))
				}
				for _, f := range files {
					if err := spoil(f); err != nil {
						t.Fatal(err)
					}
				}
				getAll(t, r, p) // the same process
				for i := range p.refs {
					if got, err := r.Get(t.Context(), p.refs[i], nil); err != nil || !bytes.Equal(got, p.chunks[i].Data) {
						t.Fatalf("chunk %d: %v", i, err)
					}
				}
				if name == "a folder" {
					break
				}
				for _, f := range windowFiles(t, dir) { // and the next one
					if err := spoil(f); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func windowFiles(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "windows"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCacheKeepsItsBudget(t *testing.T) {
	packs := somePacks(t, 1, 4, 500)
	b := uploaded(t, packs)
	dir := t.TempDir()
	const budget = 48 * remote.WindowBytes
	onDisk := func() (total int64) {
		for _, f := range windowFiles(t, dir) {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		return total
	}
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir, CacheBytes: budget})
	for _, p := range packs {
		getAll(t, r, p)
		if n := onDisk(); n > budget || n != r.Stats().CachedBytes {
			t.Errorf("%d bytes are cached, %d of them known, the budget is %d", n, r.Stats().CachedBytes, budget)
		}
	}
	if _, n := requests(b, func() { getAll(t, r, packs[3]) }); n != 0 {
		t.Errorf("%d requests for what was read last", n)
	}
	// A smaller budget holds from the next Open on, and what a killed process was writing goes.
	if err := os.WriteFile(filepath.Join(dir, "catalog", "17.tmp"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = mustOpen(t, remote.Config{Bucket: b, CacheDir: dir, CacheBytes: budget / 2})
	if n := onDisk(); n > budget/2 || n == 0 || n != r.Stats().CachedBytes {
		t.Errorf("%d bytes after the budget was halved", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "catalog", "17.tmp")); err == nil {
		t.Error("a temporary file is left")
	}
}

func TestCacheThatCannotBeWrittenCostsRequestsOnly(t *testing.T) {
	p := makePack(t, 1, castest.Chunks(cas.NewHasher(nil), 1, 100))
	b := uploaded(t, []made{p})
	dir := t.TempDir()
	r := mustOpen(t, remote.Config{Bucket: b, CacheDir: dir})
	mustRefresh(t, r)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the folder was: nothing can be written below
		t.Fatal(err)
	}
	getAll(t, r, p)
	getAll(t, r, p)
}
