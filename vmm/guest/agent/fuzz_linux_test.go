package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// isModest tells whether unpacking an archive writes little: an entry of holes is as long as its header says.
func isModest(archive []byte) bool {
	const maxFileBytes, maxFiles = 1 << 20, 100
	r := tar.NewReader(bytes.NewReader(archive))
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

// No archive makes, changes or links a file outside of the folder it is unpacked in.
func FuzzCopyIn(f *testing.F) {
	add := func(headers ...*tar.Header) {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			text := h.PAXRecords["text"]
			delete(h.PAXRecords, "text")
			h.Size, h.Format = int64(len(text)), tar.FormatPAX
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
			io.WriteString(w, text)
		}
		w.Close()
		f.Add(out.Bytes())
	}
	add(&tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700}, &tar.Header{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o4644, PAXRecords: map[string]string{"text": "x", xattrPrefix + "user.a": "b"}})
	add(&tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../.."}, &tar.Header{Name: "up/victim", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"text": "evil"}})
	add(&tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/victim"}, &tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}, &tar.Header{Name: "b", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"text": "evil"}})
	add(&tar.Header{Name: "p", Typeflag: tar.TypeFifo}, &tar.Header{Name: "p/x", Typeflag: tar.TypeReg}, &tar.Header{Name: ".", Typeflag: tar.TypeDir, Mode: 0o777})
	f.Fuzz(func(t *testing.T, archive []byte) {
		if !isModest(archive) {
			t.Skip("it would write much")
		}
		dir := t.TempDir()
		target, victim := filepath.Join(dir, "target"), filepath.Join(dir, "victim")
		if err := os.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		(&agent{}).CopyIn(context.Background(), target, bytes.NewReader(archive))
		beside, err := os.ReadDir(dir)
		if err != nil || len(beside) != 2 {
			t.Errorf("beside the folder: %v %v", beside, err)
		}
		info, err := os.Lstat(victim)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the file outside: %v %v", info, err)
		}
		if text, err := os.ReadFile(victim); string(text) != "mine" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
	})
}

// A guest's own passwd and group, whatever is in them, never give a command more than the account that was asked for.
func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nbob:x:1000:1000::/home/bob:/bin/sh\n", "root:x:0:\nwheel:x:10:bob,ann\n", "bob:wheel")
	f.Add("bob:x:4294967296:-1::\n::::::\n", "wheel:x:10\n", "1000:10")
	f.Fuzz(func(t *testing.T, passwd, group, user string) {
		dir := t.TempDir()
		files := newAccounts(filepath.Join(dir, "passwd"), filepath.Join(dir, "group"))
		for path, text := range map[string]string{files.passwd: passwd, files.group: group} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		who, err := files.find(user)
		if err != nil {
			return
		}
		if len(who.groups) == 0 || who.groups[0] != who.gid || who.home == "" {
			t.Fatalf("%q is %+v", user, who)
		}
	})
}
