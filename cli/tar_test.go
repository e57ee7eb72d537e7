package cli

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func tarOf(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			w.Write([]byte("evil"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// No stream, whatever its names and links, writes or links outside of its target.
func TestUnpackingNeverLeavesItsTarget(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"dots":                {{Name: "../victim", Typeflag: tar.TypeReg}},
		"dots inside":         {{Name: "a/../../victim", Typeflag: tar.TypeReg}},
		"through a link":      {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "a/victim", Typeflag: tar.TypeReg}},
		"through two links":   {{Name: "a", Typeflag: tar.TypeDir}, {Name: "a/b", Typeflag: tar.TypeSymlink, Linkname: "../.."}, {Name: "a/c", Typeflag: tar.TypeSymlink, Linkname: "b"}, {Name: "a/c/victim", Typeflag: tar.TypeReg}},
		"through a file link": {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "../victim"}, {Name: "a", Typeflag: tar.TypeReg}},
		"hard link":           {{Name: "a", Typeflag: tar.TypeLink, Linkname: "../victim"}},
		"hard link by a link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "a", Typeflag: tar.TypeLink, Linkname: "l/victim"}},
		"mode by a link":      {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "../victim"}, {Name: "a", Typeflag: tar.TypeDir, Mode: 0o777}},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			target, victim := filepath.Join(outside, "target"), filepath.Join(outside, "victim")
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(target)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			_, err = unpackTar(t.Context(), tarOf(t, headers...), root, "")
			t.Log(err)
			text, _ := os.ReadFile(victim)
			info, statErr := os.Stat(victim)
			if string(text) != "mine" || statErr != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file outside is %q %v %v", text, info, statErr)
			}
			left, _ := os.ReadDir(outside)
			if len(left) != 2 {
				t.Errorf("outside there are %v", left)
			}
			if f, err := os.Lstat(filepath.Join(target, "a")); err == nil && f.Mode().IsRegular() && os.SameFile(f, info) {
				t.Error("the file outside has a link inside")
			}
		})
	}
}

func TestPackedFolderComesOutTheSame(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	when := time.Unix(1_700_000_000, 123_000_000)
	for name, text := range map[string]string{"file": "text", "deep/er/leaf": "", "run.sh": "#!/bin/sh\n"} {
		p := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(filepath.Join(from, "run.sh"), 0o4755))
	must(os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	must(os.Chtimes(filepath.Join(from, "file"), when, when))
	must(os.Chmod(filepath.Join(from, "deep"), 0o500))
	t.Cleanup(func() { os.Chmod(filepath.Join(from, "deep"), 0o700) })

	var b bytes.Buffer
	must(packTar(t.Context(), &b, from, "name"))
	target := t.TempDir()
	root, err := os.OpenRoot(target)
	must(err)
	defer root.Close()
	skipped, err := unpackTar(t.Context(), &b, root, "renamed")
	must(err)
	t.Cleanup(func() { os.Chmod(filepath.Join(target, "renamed", "deep"), 0o700) })
	if skipped != 0 {
		t.Errorf("%d left out", skipped)
	}
	at := func(p string) string { return filepath.Join(target, "renamed", p) }
	if text, err := os.ReadFile(at("file")); err != nil || string(text) != "text" {
		t.Errorf("%q %v", text, err)
	}
	if info, err := os.Stat(at("file")); err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(when) {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(at("run.sh")); err != nil || info.Mode() != 0o755 {
		t.Errorf("set-user-id came through: %v %v", info.Mode(), err)
	}
	if to, err := os.Readlink(at("link")); err != nil || to != "/etc/passwd" {
		t.Errorf("%q %v", to, err)
	}
	if info, err := os.Stat(at("deep")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := os.Stat(at("deep/er/leaf")); err != nil {
		t.Error(err)
	}
}

func TestNothingOutOfAVMIsNotSuccess(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, stream := range map[string]*bytes.Buffer{"empty": {}, "no entries": tarOf(t)} {
		if _, err := unpackTar(t.Context(), stream, root, ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPlacesAreTold(t *testing.T) {
	for in, want := range map[string][2]string{
		"a:/x": {"/x", "a"}, "file": {"file", ""}, "./a:b": {"./a:b", ""}, "/a:b": {"/a:b", ""}, "-": {"-", ""}, ":/x": {":/x", ""}, "../a:/x": {"../a:/x", ""},
	} {
		p, vm, err := parsePlace(in)
		if err != nil || p != want[0] || vm != want[1] {
			t.Errorf("%s: %q %q %v", in, p, vm, err)
		}
	}
	if _, _, err := parsePlace("a:b"); err == nil || !strings.Contains(err.Error(), "begins with /") {
		t.Errorf("a relative path in a VM: %v", err)
	}
}
