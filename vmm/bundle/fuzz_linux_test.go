package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// FuzzImport imports archives that are right as far as hashes go, for a fuzzer never hits upon those: "LAYER", "CONFIG"
// and "MANIFEST" in the texts become the hashes of what they name, and "SIZE" their lengths. Whatever the texts and the
// layer are, the import ends with a tree below its folder or an error, within its bounds.
func FuzzImport(f *testing.F) {
	layer := tarOf(f, folder("etc"), file("etc/passwd", "root"), symlink("up", "../.."), file("up/beside", "x"))
	config := `{"os":"linux","architecture":"` + runtime.GOARCH + `","config":{"Env":["A=b"],"Cmd":["x"]},"rootfs":{"type":"layers","diff_ids":["sha256:LAYER"]}}`
	docker := `[{"Config":"config.json","RepoTags":["a:1"],"Layers":["layer.tar"]}]`
	manifest := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:CONFIG","size":SIZE},` +
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:LAYER","size":SIZE}]}`
	index := `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:MANIFEST","size":SIZE,"platform":{"os":"linux","architecture":"` + runtime.GOARCH + `"}}]}`
	f.Add(docker, config, "", "", layer, false)
	f.Add("", config, manifest, index, layer, true)
	f.Add("", config, manifest, strings.Replace(index, "image.manifest", "image.index", 1), layer, true)
	f.Add(docker, `{"rootfs":{"diff_ids":["sha256:LAYER","sha512:LAYER","x"]}}`, "", "", []byte("\x1f\x8b\x08"), false)
	f.Fuzz(func(t *testing.T, docker, config, manifest, index string, layer []byte, oci bool) {
		needRoot(t)
		dir := t.TempDir()
		archive := filepath.Join(dir, "image.tar")
		if err := os.WriteFile(archive, importable(t, docker, config, manifest, index, layer, oci), 0o600); err != nil {
			t.Fatal(err)
		}
		b := &builder{scratch: filepath.Join(dir, "scratch"), cache: dir, step: func(string, int64, int64, string) {}}
		if err := os.Mkdir(b.scratch, 0o700); err != nil {
			t.Fatal(err)
		}
		tr, err := b.imageTree(context.Background(), archive, 1)
		if err == nil && (tr.dir != filepath.Join(b.scratch, "root") || tr.diskMiB > importDiskMiB) {
			t.Errorf("%+v", tr)
		}
		if beside, err := os.ReadDir(dir); err != nil || len(beside) != 2 {
			t.Errorf("beside the scratch: %v %v", beside, err)
		}
	})
}

// importable makes an archive of the texts, with the hashes filled in.
func importable(t *testing.T, docker, config, manifest, index string, layer []byte, oci bool) []byte {
	hash := func(p string) string { sum := sha256.Sum256([]byte(p)); return hex.EncodeToString(sum[:]) }
	fill := func(text, word, of string) string {
		return strings.ReplaceAll(strings.ReplaceAll(text, word, hash(of)), "SIZE", fmt.Sprint(len(of)))
	}
	config = fill(config, "LAYER", string(layer))
	files := map[string]string{"manifest.json": docker, "config.json": config, "layer.tar": string(layer)}
	names := []string{"manifest.json", "config.json", "layer.tar"}
	if oci {
		// Each SIZE stands behind its hash: the first is the configuration's.
		at := strings.Index(manifest, "SIZE")
		if at >= 0 {
			manifest = manifest[:at] + fmt.Sprint(len(config)) + manifest[at+len("SIZE"):]
		}
		manifest = fill(strings.ReplaceAll(manifest, "CONFIG", hash(config)), "LAYER", string(layer))
		index = fill(index, "MANIFEST", manifest)
		files = map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": index}
		names = []string{"oci-layout", "index.json"}
		for _, blob := range []string{string(layer), config, manifest} {
			name := "blobs/sha256/" + hash(blob)
			files[name] = blob
			names = append(names, name)
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(files[name]))
	}
	w.Close()
	return out.Bytes()
}
