package main

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// entry is what a copy must keep of a file.
type entry struct {
	kind       byte
	mode       int64
	uid, gid   int
	modified   int64 // nanoseconds
	link, text string
	major      int64
	minor      int64
	xattr      string
}

func entriesOf(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	found := map[string]entry{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = entry{h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.UnixNano(), h.Linkname, string(text), h.Devmajor, h.Devminor, h.PAXRecords[xattrPrefix+"user.flash"]}
	}
}

func archiveOf(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_000_000_000, 123456789)
		}
		text := h.PAXRecords["FLASH.text"]
		h.Size = int64(len(text))
		delete(h.PAXRecords, "FLASH.text")
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return out.Bytes()
}

func text(s string) map[string]string { return map[string]string{"FLASH.text": s} }

func copyKeepsEverything(t *testing.T, p place) {
	p.sh(t, "rm -rf /root/flash-copy; mkdir -m 700 /root/flash-copy")
	defer p.sh(t, "rm -rf /root/flash-copy")
	binary := "\x00\x01\xff value"
	big := strings.Repeat("0123456789abcdef", 1<<17)
	in := archiveOf(t,
		&tar.Header{Name: "t/", Typeflag: tar.TypeDir, Mode: 0o1751, Uid: 1000, Gid: 77},
		&tar.Header{Name: "t/file", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1000, Gid: 1000,
			PAXRecords: map[string]string{"FLASH.text": "some text\n", xattrPrefix + "user.flash": binary}},
		&tar.Header{Name: "t/same", Typeflag: tar.TypeLink, Linkname: "t/file"},
		&tar.Header{Name: "t/link", Typeflag: tar.TypeSymlink, Linkname: "../../elsewhere/ö", Mode: 0o777, Uid: 5, Gid: 6},
		&tar.Header{Name: "t/fifo", Typeflag: tar.TypeFifo, Mode: 0o620},
		&tar.Header{Name: "t/null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
		&tar.Header{Name: "t/deep/er/file with a näme", Typeflag: tar.TypeReg, Mode: 0o600, PAXRecords: text(big)},
		&tar.Header{Name: "t/" + strings.Repeat("long", 50), Typeflag: tar.TypeReg, Mode: 0, PAXRecords: text("")},
	)
	if err := p.client.CopyIn(t.Context(), "/root/flash-copy", bytes.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := p.client.CopyOut(t.Context(), "/root/flash-copy/t", &out); err != nil {
		t.Fatal(err)
	}
	want, got := entriesOf(t, in), entriesOf(t, out.Bytes())
	same := want["t/same"] // a name of the same file: which of the two comes first is the alphabet's choice
	file := want["t/file"]
	same.link, same.mode, same.uid, same.gid, same.xattr = "t/file", file.mode, file.uid, file.gid, file.xattr
	want["t/same"] = same
	for _, name := range []string{"t/deep/", "t/deep/er/"} { // made on the way
		if got[name].kind != tar.TypeDir {
			t.Errorf("%s is missing", name)
		}
		delete(got, name)
	}
	for name, w := range want {
		if g := got[name]; g != w {
			g.text, w.text = g.text[:min(20, len(g.text))], w.text[:min(20, len(w.text))]
			t.Errorf("%s:\n got %+v\nwant %+v", name, g, w)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("there is more: %v", slices.Collect(maps.Keys(got)))
	}
	// Once more over what is there, and then a file where a link was.
	if err := p.client.CopyIn(t.Context(), "/root/flash-copy", bytes.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	over := archiveOf(t, &tar.Header{Name: "/t/link", Typeflag: tar.TypeReg, Mode: 0o644, PAXRecords: text("now a file")})
	if err := p.client.CopyIn(t.Context(), "/root/flash-copy", bytes.NewReader(over)); err != nil {
		t.Fatal(err)
	}
	if out := p.sh(t, "cat /root/flash-copy/t/link; test ! -L /root/flash-copy/t/link"); out != "now a file" {
		t.Errorf("%q", out)
	}
}

func copyCannotLeaveItsFolder(t *testing.T, p place) {
	p.sh(t, "rm -rf /root/flash-in /root/flash-out; mkdir /root/flash-in /root/flash-out; ln -s /root/flash-out /root/flash-in/absolute; ln -s ../flash-out /root/flash-in/relative; echo precious > /root/flash-out/file")
	defer p.sh(t, "rm -rf /root/flash-in /root/flash-out")
	for _, headers := range [][]*tar.Header{
		{{Name: "../flash-out/new", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "a/../../flash-out/new", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "absolute/new", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "relative/new", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "relative/file", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "own", Typeflag: tar.TypeSymlink, Linkname: "/root/flash-out"}, {Name: "own/new", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "own", Typeflag: tar.TypeSymlink, Linkname: "/root/flash-out/file"}, {Name: "own", Typeflag: tar.TypeReg, PAXRecords: text("x")}},
		{{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../flash-out/file"}},
		{{Name: "hard", Typeflag: tar.TypeLink, Linkname: "relative/file"}},
		{{Name: "relative", Typeflag: tar.TypeDir, Mode: 0o777}},
	} {
		p.client.CopyIn(t.Context(), "/root/flash-in", bytes.NewReader(archiveOf(t, headers...))) // may fail, and mostly does
		if out := p.sh(t, "cd /root/flash-out; cat *; ls; stat -c '%a %h' . file"); out != "precious\nfile\n755 2\n644 1\n" {
			t.Errorf("%s: outside there is now %q", headers[len(headers)-1].Name, out)
		}
	}
}

func TestCopyOnThisHost(t *testing.T) {
	p := hostPlace(t)
	t.Run("KeepsEverything", func(t *testing.T) { copyKeepsEverything(t, p) })
	t.Run("CannotLeaveItsFolder", func(t *testing.T) { copyCannotLeaveItsFolder(t, p) })
}
