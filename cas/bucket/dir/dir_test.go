package dir_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"flash/cas/bucket"
	"flash/cas/bucket/buckettest"
	"flash/cas/bucket/dir"
)

func open(t *testing.T, path string) *dir.Bucket {
	t.Helper()
	b, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, t.TempDir()) })
}

func TestFolderThatIsNotThereIsNotMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "mounted")
	if _, err := dir.Open(path); !errors.Is(err, bucket.ErrNoBucket) {
		t.Fatalf("open: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the folder was made")
	}
}

func TestObjectsAreFilesOfTheirNames(t *testing.T) {
	path := t.TempDir()
	b := open(t, path)
	for key, name := range map[string]string{"packs/00ff.pack": "packs/00ff.pack", "vms/Agent 1": "vms/%41gent%201", "x/.y": "x/%2Ey"} {
		if _, err := b.Put(t.Context(), key, bytes.NewReader([]byte(key)), int64(len(key)), bucket.Condition{}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(path, name)); err != nil || string(got) != key {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestFilesThatAreNotOursAreNotListed(t *testing.T) {
	path := t.TempDir()
	b := open(t, path)
	for _, name := range []string{".nfs0001", "UPPER", "per%cent", "%2e", "%41", ".DS_Store"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for info, err := range b.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if !slices.Equal(keys, []string{"A"}) { // %41 is how an A is written
		t.Errorf("listed: %q", keys)
	}
}

func TestLinksOutOfTheFolderAreNotFollowed(t *testing.T) {
	outside, path := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(path, "link")); err != nil {
		t.Skip(err)
	}
	b := open(t, path)
	if data, _, err := b.Get(t.Context(), "link/secret", 10); err == nil {
		t.Fatalf("read: %q", data)
	}
	if _, err := b.Put(t.Context(), "link/new", bytes.NewReader(nil), 0, bucket.Condition{}); err == nil {
		t.Fatal("written")
	}
}

func TestKilledPutsAreSweptAfterADay(t *testing.T) {
	path := t.TempDir()
	temps := filepath.Join(path, ".flash", "tmp")
	if err := os.MkdirAll(temps, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"killed": 25 * time.Hour, "running": 23 * time.Hour} {
		file := filepath.Join(temps, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := open(t, path).Put(t.Context(), "k", bytes.NewReader(nil), 0, bucket.Condition{}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(temps)
	if err != nil || len(files) != 1 || files[0].Name() != "running" {
		t.Errorf("left: %v, %v", files, err)
	}
}

func TestURLsOfFolders(t *testing.T) {
	for location, want := range map[string]string{"file:///a/b": "/a/b", "file://localhost/a": "/a", "file:///a%20b": "/a b"} {
		if got, err := dir.ParseURL(location); err != nil || filepath.ToSlash(got) != want {
			t.Errorf("%s: %q, %v", location, got, err)
		}
	}
	for _, location := range []string{"file:a", "file://host/a", "s3://a/b", "/a", "file:///a?b", "file://"} {
		if got, err := dir.ParseURL(location); err == nil {
			t.Errorf("%s is %q", location, got)
		}
	}
}
