package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheGenerationIsReplacedInPlaceWhateverItsLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "generation")
	kept := newKeptFile(path)
	defer kept.close()
	if fd, _ := kept.look(); fd >= 0 {
		t.Fatal("a file that isn't there is open")
	}
	write := func(text string) {
		t.Helper()
		known := &foresight{}
		known.generation, known.bytes = kept.look()
		if err := known.writeGeneration(text); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Fatalf("%q, %v; want %q", b, err, text)
		}
	}
	if err := os.WriteFile(path, []byte("first\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	write("a longer one\n")
	write("short\n")
	// A guest may replace the file, or put a link in its place.
	if err := writeAtomically(path, "another file\n"); err != nil {
		t.Fatal(err)
	}
	write("of the other file\n")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if fd, _ := kept.look(); fd >= 0 {
		t.Error("a link was followed")
	}
}

func TestAccountsAreReadAgainWhenTheirFilesChange(t *testing.T) {
	dir := t.TempDir()
	a := newAccounts(filepath.Join(dir, "passwd"), filepath.Join(dir, "group"))
	for _, home := range []string{"/one", "/two", "/three"} {
		if err := os.WriteFile(a.passwd, []byte("ann:x:1000:1000::"+home+":/bin/sh\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if who, err := a.find("ann"); err != nil || who.home != home || who.uid != 1000 {
				t.Errorf("%+v, %v; want home %s", who, err, home)
			}
		}
	}
	os.Remove(a.passwd)
	if _, err := a.find("ann"); err == nil {
		t.Error("a user of a file that has gone was found")
	}
}

func TestChoresAreDoneOnceAtTheNextFreeze(t *testing.T) {
	var c chores
	var done []int
	c.later(func() { done = append(done, 1) })
	c.later(func() { done = append(done, 2) })
	c.now()
	c.now()
	if len(done) != 2 || done[0] != 1 || done[1] != 2 || c.timer != nil {
		t.Errorf("done: %v, timer %v", done, c.timer)
	}
}
