//go:build linux

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tarOf makes a layer. Owner, mode and time default to something that isn't the test's own.
func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := h.PAXRecords["text"]
		delete(h.PAXRecords, "text")
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o640
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1000000000, 0)
		}
		h.Size = int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, text string) tar.Header {
	return tar.Header{Name: name, PAXRecords: map[string]string{"text": text}}
}
func folder(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}
func symlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}
func hardlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// applyAll applies layers to a new folder beside a file that nobody may touch.
func applyAll(t testing.TB, layers ...[]byte) (root string, err error) {
	t.Helper()
	dir := t.TempDir()
	root = filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	lt, err := openLayerTree(root, layerLimits{entries: 1000, bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer lt.Close()
	for _, l := range layers {
		if err = lt.apply(context.Background(), bytes.NewReader(l)); err != nil {
			break
		}
	}
	if text, rerr := os.ReadFile(outside); string(text) != "outside" || rerr != nil {
		t.Errorf("the file outside: %q %v", text, rerr)
	}
	beside, rerr := os.ReadDir(dir)
	if len(beside) != 2 || rerr != nil {
		t.Errorf("beside the tree: %v %v", beside, rerr)
	}
	return root, err
}

// listing shows a tree as text: "d path", "f path=contents", "l path→target".
func listing(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch {
		case d.IsDir():
			lines = append(lines, rel+"/")
		case d.Type()&os.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			lines = append(lines, rel+"→"+to)
		case d.Type().IsRegular():
			text, _ := os.ReadFile(p)
			lines = append(lines, rel+"="+string(text))
		default:
			lines = append(lines, rel+" "+d.Type().String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, " ")
}

func TestLayersAreAppliedAsTheSpecificationSays(t *testing.T) {
	needRoot(t)
	type layers = [][]tar.Header
	for _, test := range []struct {
		name   string
		layers layers
		want   string
	}{
		{"a file replaces a file", layers{{file("a", "1")}, {file("a", "2")}}, "a=2"},
		{"leading slash and dot", layers{{file("/a", "1"), file("./b", "2"), folder("./")}}, "a=1 b=2"},
		{"missing folders are made", layers{{file("x/y/z", "1")}}, "x/ x/y/ x/y/z=1"},
		{"a folder keeps what is in it", layers{{folder("d"), file("d/a", "1")}, {folder("d"), file("d/b", "2")}}, "d/ d/a=1 d/b=2"},
		{"a file replaces a folder", layers{{folder("d"), file("d/a", "1")}, {file("d", "2")}}, "d=2"},
		{"a folder replaces a file", layers{{file("d", "1")}, {folder("d"), file("d/a", "2")}}, "d/ d/a=2"},
		{"a link replaces a folder", layers{{folder("d"), file("d/a", "1")}, {symlink("d", "e")}}, "d→e"},
		{"a folder replaces a link", layers{{folder("e"), symlink("d", "e")}, {folder("d"), file("d/a", "1")}}, "d/ d/a=1 e/"},
		{"whiteout of a file", layers{{file("a", "1"), file("b", "2")}, {file(".wh.a", "")}}, "b=2"},
		{"whiteout of a folder", layers{{file("d/e/a", "1"), file("d/b", "2")}, {file("d/.wh.e", "")}}, "d/ d/b=2"},
		{"whiteout of a link leaves its target", layers{{file("a", "1"), symlink("l", "a")}, {file(".wh.l", "")}}, "a=1"},
		{"whiteout of nothing", layers{{file("a", "1")}, {file(".wh.b", ""), file("no/.wh.c", ""), file("a/.wh.c", "")}}, "a=1"},
		{"whiteout before its own layer's file", layers{{file("a", "1")}, {file(".wh.a", ""), file("a", "2")}}, "a=2"},
		{"whiteout after its own layer's file", layers{{file("a", "1")}, {file("a", "2"), file(".wh.a", "")}}, "a=2"},
		{"whiteout after its own layer's folder", layers{{file("d/old", "1")}, {file("d/new", "2"), folder("d"), file(".wh.d", "")}}, "d/ d/new=2"},
		{"opaque first", layers{{file("d/a", "1"), file("d/e/b", "1")}, {file("d/.wh..wh..opq", ""), file("d/c", "2")}}, "d/ d/c=2"},
		{"opaque last", layers{{file("d/a", "1"), file("d/e/b", "1")}, {folder("d/e"), file("d/e/c", "2"), file("d/.wh..wh..opq", "")}}, "d/ d/e/ d/e/c=2"},
		{"opaque of the root", layers{{file("a", "1")}, {file(".wh..wh..opq", ""), file("b", "2")}}, "b=2"},
		{"opaque of nothing", layers{{file("no/.wh..wh..opq", "")}}, ""},
		{"a lower whiteout doesn't last", layers{{file("a", "1")}, {file(".wh.a", "")}, {file("a", "3")}}, "a=3"},
		{"others' bookkeeping", layers{{file(".wh..wh.plnk/1.2", ""), file(".wh..wh.aufs", "")}}, ""},
		{"hard link in a layer", layers{{file("a", "1"), hardlink("d/b", "a")}}, "a=1 d/ d/b=1"},
		{"hard link to a lower layer's file", layers{{file("a", "1")}, {hardlink("b", "/a")}}, "a=1 b=1"},
		{"hard link outlives its target", layers{{file("a", "1"), hardlink("b", "a")}, {file(".wh.a", "")}}, "b=1"},
		{"hard link to itself", layers{{file("a", "1")}, {hardlink("a", "./a")}}, "a=1"},
		{"hard link to a symbolic link", layers{{symlink("l", "nowhere"), hardlink("m", "l")}}, "l→nowhere m→nowhere"},
		{"names lead through links", layers{{folder("usr/lib"), symlink("lib", "usr/lib")}, {file("lib/a", "1")}}, "lib→usr/lib usr/ usr/lib/ usr/lib/a=1"},
		{"whiteouts lead through links", layers{{file("usr/lib/a", "1"), symlink("lib", "usr/lib")}, {file("lib/.wh.a", "")}}, "lib→usr/lib usr/ usr/lib/"},
		{"opaque through a link", layers{{file("usr/lib/a", "1"), symlink("lib", "/usr/lib")}, {file("usr/lib/b", "2"), file("lib/.wh..wh..opq", "")}}, "lib→/usr/lib usr/ usr/lib/ usr/lib/b=2"},
		{"absolute links lead inside", layers{{folder("in"), symlink("l", "/in")}, {file("l/a", "1")}}, "in/ in/a=1 l→/in"},
		{"links with dots lead inside", layers{{symlink("l", "../../../.."), file("l/a", "1")}}, "a=1 l→../../../.."},
		{"an odd name", layers{{file("a\nb ", "1"), file("…", "2")}}, "a\nb =1 …=2"},
		{"a name with dots that stays inside", layers{{file("a/../b", "1")}}, "b=1"},
		{"fifo", layers{{{Name: "p", Typeflag: tar.TypeFifo}}}, "p p---------"},
		{"an empty layer", layers{{}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tars [][]byte
			for _, l := range test.layers {
				tars = append(tars, tarOf(t, l...))
			}
			root, err := applyAll(t, tars...)
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, root); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestPathsCannotLeaveTheTree(t *testing.T) {
	needRoot(t)
	for _, test := range []struct {
		name   string
		layer  []tar.Header
		refuse bool // else what it asks for happens inside the tree
	}{
		{"dots", []tar.Header{file("../outside", "bad")}, true},
		{"dots in the middle", []tar.Header{file("a/../../outside", "bad")}, true},
		{"whiteout with dots", []tar.Header{file("../.wh.outside", "")}, true},
		{"whiteout of the parent", []tar.Header{file(".wh...", "")}, true},
		{"whiteout of nothing", []tar.Header{file("d/.wh.", "")}, true},
		{"hard link to the outside", []tar.Header{hardlink("a", "../outside")}, true},
		{"hard link to an absolute path", []tar.Header{hardlink("a", "/etc/passwd")}, true},
		{"hard link to a folder", []tar.Header{folder("d"), hardlink("a", "d")}, true},
		{"hard link to the root", []tar.Header{hardlink("a", ".")}, true},
		{"link, then through it", []tar.Header{symlink("up", ".."), file("up/outside", "inside")}, false},
		{"two links", []tar.Header{symlink("a", ".."), symlink("b", "a/.."), file("b/outside", "inside")}, false},
		{"absolute link", []tar.Header{symlink("a", "/tmp"), folder("tmp"), file("a/x", "inside")}, false},
		{"hard link through a link", []tar.Header{symlink("up", ".."), hardlink("a", "up/outside")}, true},
		{"opaque through a link", []tar.Header{symlink("up", ".."), file("up/.wh..wh..opq", "")}, false},
		{"whiteout through a link", []tar.Header{symlink("up", ".."), file("up/.wh.outside", "")}, false},
		{"over a link", []tar.Header{symlink("a", "../outside"), file("a", "inside")}, false},
		{"link to nowhere as a folder", []tar.Header{symlink("a", "nowhere"), file("a/b", "x")}, true},
		{"link in a circle", []tar.Header{symlink("a", "a"), file("a/b", "x")}, true},
		{"a magic link", []tar.Header{symlink("p", "/proc/self/root"), file("p/x", "inside")}, true},
		{"the root as a file", []tar.Header{file(".", "x")}, true},
		{"a bad owner", []tar.Header{{Name: "a", Uid: -1}}, true},
		{"a name too long", []tar.Header{file(strings.Repeat("a/", 3000)+"b", "")}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, err := applyAll(t, tarOf(t, test.layer...))
			if refused := err != nil; refused != test.refuse {
				t.Errorf("refused: %v, error %v", refused, err)
			}
			if test.refuse {
				t.Log(err)
				return
			}
			t.Log(listing(t, root))
		})
	}
}

func TestOwnersModesTimesAndAttributesAreKept(t *testing.T) {
	needRoot(t)
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // cap_net_bind_service+ep… as the kernel keeps it
	root, err := applyAll(t, tarOf(t,
		tar.Header{Name: "suid", Mode: 0o6755, Uid: 1234, Gid: 70000, PAXRecords: map[string]string{
			"text": "x", "SCHILY.xattr.user.note": "a\x00b", "SCHILY.xattr.security.capability": capability,
			"SCHILY.xattr.security.selinux": "dropped", "SCHILY.xattr.trusted.overlay.opaque": "y"}},
		tar.Header{Name: "dir", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 7, Gid: 8},
		file("dir/later", "makes the folder's time new"),
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "suid", Uid: 5, Gid: 6},
		tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666},
		tar.Header{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 259, Devminor: 70000, Mode: 0o600},
		hardlink("same", "suid"),
	))
	if err != nil {
		t.Fatal(err)
	}
	stat := func(name string) unix.Stat_t {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, name), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	for _, test := range []struct {
		name     string
		mode     uint32
		uid, gid uint32
		dev      uint64
	}{
		{"suid", unix.S_IFREG | 0o6755, 1234, 70000, 0},
		{"dir", unix.S_IFDIR | 0o1777, 7, 8, 0},
		{"link", unix.S_IFLNK | 0o777, 5, 6, 0},
		{"null", unix.S_IFCHR | 0o666, 0, 0, unix.Mkdev(1, 3)},
		{"disk", unix.S_IFBLK | 0o600, 0, 0, unix.Mkdev(259, 70000)},
	} {
		st := stat(test.name)
		if st.Mode != test.mode || st.Uid != test.uid || st.Gid != test.gid || st.Rdev != test.dev || st.Mtim.Sec != 1000000000 {
			t.Errorf("%s: mode %o owner %d:%d device %x time %d", test.name, st.Mode, st.Uid, st.Gid, st.Rdev, st.Mtim.Sec)
		}
	}
	if a, b := stat("suid"), stat("same"); a.Ino != b.Ino || a.Nlink != 2 {
		t.Error("the hard link is a file of its own")
	}
	buf := make([]byte, 100)
	for name, want := range map[string]string{"user.note": "a\x00b", "security.capability": capability, "trusted.overlay.opaque": ""} {
		n, err := unix.Lgetxattr(filepath.Join(root, "suid"), name, buf)
		if got := string(buf[:max(n, 0)]); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestAnImageCannotBringTooMuch(t *testing.T) {
	needRoot(t)
	var many []tar.Header
	for i := range 1001 {
		many = append(many, file(fmt.Sprint("f", i), ""))
	}
	if _, err := applyAll(t, tarOf(t, many...)); !errors.Is(err, ErrBadImage) {
		t.Errorf("too many files: %v", err)
	}
	big := file("big", strings.Repeat("x", 600<<10))
	if _, err := applyAll(t, tarOf(t, big), tarOf(t, file("big", strings.Repeat("y", 600<<10)))); !errors.Is(err, ErrDiskTooSmall) {
		t.Errorf("too many bytes: %v", err)
	}
	xattrs := map[string]string{"text": ""}
	for i := range maxXattrs + 1 {
		xattrs[fmt.Sprint("SCHILY.xattr.user.", i)] = "x"
	}
	if _, err := applyAll(t, tarOf(t, tar.Header{Name: "a", PAXRecords: xattrs})); !errors.Is(err, ErrBadImage) {
		t.Errorf("too many attributes: %v", err)
	}
}

func TestATornLayerIsRefused(t *testing.T) {
	needRoot(t)
	whole := tarOf(t, file("a", strings.Repeat("x", 2000)))
	for _, n := range []int{100, 600, 1536} {
		if _, err := applyAll(t, whole[:n]); !errors.Is(err, ErrBadImage) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

func FuzzEntryNameStaysInside(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/../../b", "/.wh.a", ".wh..wh..opq", ".wh...", "./", "a/.wh./b", "..", "a/.wh.../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, _, err := parseEntryName(name)
		if err != nil {
			return
		}
		if strings.HasPrefix(clean, "/") || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains("/"+clean+"/", "/../") {
			t.Errorf("%q became %q", name, clean)
		}
	})
}

func FuzzLayer(f *testing.F) {
	f.Add(tarOf(f, file("a", "1"), symlink("up", ".."), file("up/outside", "x"), hardlink("b", "a"), file(".wh.a", "")))
	f.Add(tarOf(f, folder("d"), file("d/.wh..wh..opq", ""), tar.Header{Name: "x", PAXRecords: map[string]string{"text": "1", "SCHILY.xattr.user.a": "b"}}))
	f.Fuzz(func(t *testing.T, layer []byte) {
		needRoot(t)
		applyAll(t, layer) // which looks at what is beside the tree
	})
}
