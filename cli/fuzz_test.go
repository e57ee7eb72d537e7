package cli

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// No stream of a guest writes, links or changes anything outside of the folder it is unpacked in.
func FuzzUnpackTar(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{{Name: "d", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "d/l", Typeflag: tar.TypeLink, Linkname: "d/f"}},
		{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "a/victim", Typeflag: tar.TypeReg}},
		{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../victim"}, {Name: "a", Typeflag: tar.TypeLink, Linkname: "l"}, {Name: "a", Typeflag: tar.TypeReg}},
		{{Name: "/", Typeflag: tar.TypeDir}, {Name: "p", Typeflag: tar.TypeFifo}, {Name: "a/../b", Typeflag: tar.TypeReg}},
	} {
		f.Add(tarOf(f, headers...).Bytes(), "")
		f.Add(tarOf(f, headers...).Bytes(), "new")
	}
	f.Fuzz(func(t *testing.T, stream []byte, name string) {
		if !isModest(stream) || name != "" && (name != filepath.Base(name) || !filepath.IsLocal(name)) {
			t.Skip("it would write much, or is no name that flash cp gives")
		}
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
		unpackTar(t.Context(), bytes.NewReader(stream), root, name)
		beside, err := os.ReadDir(outside)
		if err != nil || len(beside) != 2 {
			t.Errorf("beside the folder: %v %v", beside, err)
		}
		if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o600 {
			t.Errorf("the file outside: %v %v", info, err)
		}
		if text, err := os.ReadFile(victim); string(text) != "mine" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
	})
}

// isModest tells whether unpacking a stream writes little: an entry of holes is as long as its header says.
func isModest(stream []byte) bool {
	const maxFileBytes, maxFiles = 1 << 20, 100
	r := tar.NewReader(bytes.NewReader(stream))
	for range maxFiles {
		h, err := r.Next()
		if err != nil {
			return true
		}
		if h.Size > maxFileBytes {
			return false
		}
	}
	return false
}
