//go:build linux

package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// testImage is an image of two layers; the second is compressed with zstd.
func testImage(t *testing.T, arch string) v1.Image {
	t.Helper()
	var adds []mutate.Addendum
	for i, l := range [][]byte{
		tarOf(t, folder("usr/bin"), tar.Header{Name: "usr/bin/tool", Mode: 0o4755, Uid: 12, PAXRecords: map[string]string{
			"text": "tool", "SCHILY.xattr.user.k": "v"}}, file("gone", "x"), symlink("bin", "usr/bin")),
		tarOf(t, file(".wh.gone", ""), file("bin/second", "2"), hardlink("hard", "usr/bin/tool")),
	} {
		opts := []tarball.LayerOption{}
		media := types.OCILayer
		if i == 1 {
			opts = append(opts, tarball.WithCompression(compression.ZStd))
			media = types.OCILayerZStd
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil }, append(opts, tarball.WithMediaType(media))...)
		if err != nil {
			t.Fatal(err)
		}
		adds = append(adds, mutate.Addendum{Layer: layer})
	}
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), adds...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Env: []string{"PATH=/usr/bin", "A=b c"}, WorkingDir: "/srv", User: "12:12", Cmd: []string{"tool"}}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

const testListing = "bin→usr/bin dev/ etc/ etc/flash/ etc/flash/hooks.d/ etc/flash/image.json=CONFIG etc/hostname=flash\n etc/hosts=HOSTS etc/resolv.conf=RESOLV hard=tool proc/ run/ sys/ tmp/ usr/ usr/bin/ usr/bin/second=2 usr/bin/tool=tool"

// checkImageTree imports as far as the tree and looks at it.
func checkImageTree(t *testing.T, path string) tree {
	t.Helper()
	tr, err := newBuilder(t).imageTree(context.Background(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(tr.dir, ImageConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.NewReplacer(string(config), "CONFIG", hostsText, "HOSTS", resolvText, "RESOLV").Replace(listing(t, tr.dir))
	if got != testListing {
		t.Errorf("got  %s\nwant %s", got, testListing)
	}
	for _, text := range []string{string(config), string(tr.config)} {
		var c ImageConfig
		if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Env) != 2 || c.Env[1] != "A=b c" || c.WorkingDir != "/srv" || c.User != "12:12" || len(c.Cmd) != 1 {
			t.Errorf("%+v %v", c, err)
		}
	}
	return tr
}

// dockerSave writes the archive as docker itself does: layers aren't compressed, and one stands there twice by a link.
func dockerSave(t *testing.T, img v1.Image) []byte {
	t.Helper()
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	headers := []tar.Header{file("config.json", string(config))}
	var names []string
	for i, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("layer", i)
		headers = append(headers, folder(id), file(id+"/real.tar", string(text)), symlink(id+"/layer.tar", "../"+id+"/real.tar"))
		names = append(names, id+"/layer.tar")
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{"test/image:1"}, "Layers": names}})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, append(headers, file("manifest.json", string(manifest)))...)
}

func writeTemp(t *testing.T, data []byte) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(at, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestEveryFormOfAnImageGivesTheSameTree(t *testing.T) {
	needRoot(t)
	img := testImage(t, runtime.GOARCH)
	other := testImage(t, "s390x")
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	dirs := map[string]v1.ImageIndex{
		"OCI layout": mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "test/image:1"}}}),
		"OCI layout for many platforms":  index,
		"OCI layout with an index in it": mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}),
	}
	for what, ii := range dirs {
		dir := t.TempDir()
		if _, err := layout.Write(dir, ii); err != nil {
			t.Fatal(err)
		}
		t.Run(what, func(t *testing.T) { checkImageTree(t, dir) })
		t.Run("tar of "+what, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "layout.tar")
			if out, err := exec.Command("tar", "-C", dir, "-cf", at, ".").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			checkImageTree(t, at)
		})
	}
	saved := dockerSave(t, img)
	t.Run("docker save", func(t *testing.T) {
		tr := checkImageTree(t, writeTemp(t, saved))
		if tr.facts[FactImageRef] != "test/image:1" {
			t.Errorf("%v", tr.facts)
		}
	})
	t.Run("docker save, compressed", func(t *testing.T) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(saved)
		z.Close()
		checkImageTree(t, writeTemp(t, b.Bytes()))
	})
	t.Run("docker save by the library", func(t *testing.T) {
		at := filepath.Join(t.TempDir(), "saved.tar")
		ref, err := name.NewTag("test/image:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := tarball.WriteToFile(at, ref, img); err != nil {
			t.Fatal(err)
		}
		checkImageTree(t, at)
	})
}

func TestWhatIsNoImageIsRefused(t *testing.T) {
	needRoot(t)
	saved := dockerSave(t, testImage(t, runtime.GOARCH))
	two := tarOf(t, file("manifest.json", `[{"Config":"a","RepoTags":["x:1"]},{"Config":"b","RepoTags":["y:2"]}]`))
	emptyLayout := t.TempDir()
	if _, err := layout.Write(emptyLayout, empty.Index); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, path string
		kind       error
		text       string
	}{
		{"nothing there", "/no/such/file", ErrInvalid, "no such file"},
		{"an empty folder", t.TempDir(), ErrNotImage, "oci-layout"},
		{"a layout of nothing", emptyLayout, ErrNotImage, "0 images"},
		{"a text", writeTemp(t, bytes.Repeat([]byte("not a tar file\n"), 100)), ErrNotImage, "tar"},
		{"an empty file", writeTemp(t, nil), ErrNotImage, "empty"},
		{"some other archive", writeTemp(t, tarOf(t, file("README", "x"))), ErrNotImage, "manifest.json"},
		{"two images", writeTemp(t, two), ErrNotImage, "x:1, y:2"},
		{"no manifest", writeTemp(t, tarOf(t, file("manifest.json", "null"))), ErrBadImage, "empty"},
		{"a bad manifest", writeTemp(t, tarOf(t, file("manifest.json", "{"))), ErrBadImage, "manifest.json"},
		{"no configuration", writeTemp(t, tarOf(t, file("manifest.json", `[{"Config":"../../etc/passwd"}]`))), ErrBadImage, "configuration"},
		{"a layer that links in a circle", writeTemp(t, tarOf(t, file("c", `{"rootfs":{"diff_ids":["sha256:`+strings.Repeat("0", 64)+`"]}}`),
			symlink("l", "l"), file("manifest.json", `[{"Config":"c","Layers":["l"]}]`))), ErrBadImage, "cycle"},
		{"half an archive", writeTemp(t, saved[:bytes.Index(saved, []byte("layer0/real.tar"))+700]), ErrBadImage, ""},
		{"a torn compressed archive", writeTemp(t, []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01")), ErrBadImage, ""},
		{"another architecture", writeTemp(t, dockerSave(t, testImage(t, "s390x"))), ErrUnsupported, "s390x"},
	} {
		t.Run(test.what, func(t *testing.T) {
			_, err := newBuilder(t).imageTree(context.Background(), test.path, 0)
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCorruptLayerIsRefused(t *testing.T) {
	needRoot(t)
	img := testImage(t, runtime.GOARCH)
	saved := dockerSave(t, img)
	// The contents of a file begin a block of the inner tar, and so of the outer one.
	for at := 0; ; at += 512 {
		if bytes.HasPrefix(saved[at:], []byte("tool\x00")) {
			saved[at] ^= 1
			break
		}
	}
	_, err := newBuilder(t).imageTree(context.Background(), writeTemp(t, saved), 0)
	if !errors.Is(err, ErrBadImage) || !strings.Contains(err.Error(), "hash to") {
		t.Errorf("docker save: %v", err)
	}

	for _, what := range []string{"manifest", "config"} {
		dir := t.TempDir()
		if _, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})); err != nil {
			t.Fatal(err)
		}
		h, err := img.Digest()
		if what == "config" {
			h, err = img.ConfigName()
		}
		if err != nil {
			t.Fatal(err)
		}
		blob := filepath.Join(dir, "blobs", "sha256", h.Hex)
		text, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blob, append(text, ' '), 0o644); err != nil { // still good JSON
			t.Fatal(err)
		}
		if _, err := newBuilder(t).imageTree(context.Background(), dir, 0); !errors.Is(err, ErrBadImage) {
			t.Errorf("OCI layout, %s: %v", what, err)
		}
	}
}

func TestAnImageWithNothingInItGetsWhatTheAgentNeeds(t *testing.T) {
	needRoot(t)
	empty := tarOf(t)
	hash := sha256.Sum256(empty)
	saved := tarOf(t, file("c", `{"rootfs":{"type":"layers","diff_ids":["sha256:`+hex.EncodeToString(hash[:])+`"]}}`),
		file("l", string(empty)), file("manifest.json", `[{"Config":"c","Layers":["l"]}]`))
	tr, err := newBuilder(t).imageTree(context.Background(), writeTemp(t, saved), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dev", "proc", "sys", "run", "tmp", "etc/flash/hooks.d"} {
		if info, err := os.Stat(filepath.Join(tr.dir, dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestFurnishingAnImageCannotLeaveIt(t *testing.T) {
	needRoot(t)
	outside := t.TempDir()
	layer := tarOf(t, symlink("etc", outside), symlink("dev", "/../../.."+outside))
	hash := sha256.Sum256(layer)
	saved := tarOf(t, file("c", `{"rootfs":{"diff_ids":["sha256:`+hex.EncodeToString(hash[:])+`"]}}`),
		file("l", string(layer)), file("manifest.json", `[{"Config":"c","Layers":["l"]}]`))
	if _, err := newBuilder(t).imageTree(context.Background(), writeTemp(t, saved), 0); err == nil {
		t.Error("an image whose /etc leads nowhere was accepted")
	}
	if left, err := os.ReadDir(outside); len(left) != 0 || err != nil {
		t.Errorf("outside: %v %v", left, err)
	}
}
