package bundle

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	importDiskMiB = 4096
	// maxLayers is four times what container engines allow.
	maxLayers = 512
	// maxJSONBytes bounds manifests, indexes and configurations.
	maxJSONBytes = 4 << 20
)

// imageTree unpacks a container image into a root folder.
func (b *builder) imageTree(ctx context.Context, path string, diskMiB int) (tree, error) {
	b.step("open the image", 0, 0, "")
	img, ref, err := b.openImage(ctx, path)
	if err != nil {
		return tree{}, err
	}
	config, raw, err := imageConfig(img)
	if err != nil {
		return tree{}, err
	}
	dir := filepath.Join(b.scratch, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return tree{}, err
	}
	limits := defaultLimits
	if diskMiB != 0 {
		limits.bytes = int64(diskMiB) << 20
	}
	root, err := openLayerTree(dir, limits)
	if err != nil {
		return tree{}, err
	}
	defer root.Close()
	if err := b.applyLayers(ctx, root, img, config.RootFS.DiffIDs); err != nil {
		return tree{}, err
	}
	text, err := encodeImageConfig(config.Config)
	if err != nil {
		return tree{}, err
	}
	if err := furnish(root, text); err != nil {
		return tree{}, err
	}
	digest := sha256.Sum256(raw)
	facts := map[string]string{FactSource: "import", FactImageDigest: "sha256:" + hex.EncodeToString(digest[:])}
	if ref != "" {
		facts[FactImageRef] = ref
	}
	// Twice what is there and a gigabyte, so that a VM has room to work in.
	want := int(2*root.bytes>>20) + 1024
	return tree{dir: dir, diskMiB: max(importDiskMiB, (want+255)/256*256), facts: facts, config: text}, nil
}

// furnish adds what a machine needs and a container gets from its engine. The agent brings everything else, so an image
// without a shell, or with nothing in it, still boots.
func furnish(root *layerTree, config []byte) error {
	for _, d := range []struct {
		path string
		mode uint32
	}{
		{"dev", 0o755}, {"proc", 0o555}, {"sys", 0o555}, {"run", 0o755}, {"tmp", 0o1777}, {"etc/flash/hooks.d", 0o755},
	} {
		if err := root.ensureFolder(d.path, d.mode); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		path, text string
		replace    bool
	}{
		{"etc/resolv.conf", resolvText, false},
		{"etc/hosts", hostsText, false},
		{"etc/hostname", "flash\n", false},
		{ImageConfigPath, string(config), true},
	} {
		if err := root.ensureFile(f.path, 0o644, []byte(f.text), f.replace); err != nil {
			return err
		}
	}
	return nil
}

// imageConfig reads and checks an image's configuration; raw are its bytes.
func imageConfig(img v1.Image) (config *v1.ConfigFile, raw []byte, err error) {
	if raw, err = img.RawConfigFile(); err != nil {
		return nil, nil, fmt.Errorf("%w: its configuration: %w", ErrBadImage, err)
	}
	config = &v1.ConfigFile{}
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, nil, fmt.Errorf("%w: its configuration: %w", ErrBadImage, err)
	}
	if config.OS != "" && config.OS != "linux" {
		return nil, nil, fmt.Errorf("%w: the image is for %s, and VMs run Linux", ErrUnsupported, config.OS)
	}
	if config.Architecture != "" && config.Architecture != runtime.GOARCH {
		return nil, nil, fmt.Errorf("%w: the image is for %s and this host is %s", ErrUnsupported, config.Architecture, runtime.GOARCH)
	}
	if n := len(config.RootFS.DiffIDs); n > maxLayers {
		return nil, nil, fmt.Errorf("%w: it has %d layers", ErrBadImage, n)
	}
	return config, raw, nil
}

// applyLayers applies all layers in order, and checks each against the configuration.
func (b *builder) applyLayers(ctx context.Context, root *layerTree, img v1.Image, diffIDs []v1.Hash) error {
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("%w: its layers: %w", ErrBadImage, err)
	}
	if len(layers) != len(diffIDs) {
		return fmt.Errorf("%w: it has %d layers and its configuration speaks of %d", ErrBadImage, len(layers), len(diffIDs))
	}
	for i, l := range layers {
		b.step("unpack layers", int64(i), int64(len(layers)), "layers")
		if err := applyVerified(ctx, root, l, diffIDs[i]); err != nil {
			return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(layers), diffIDs[i], err)
		}
	}
	b.step("unpack layers", int64(len(layers)), int64(len(layers)), "layers")
	return nil
}

// applyVerified applies one layer. Its hash is known only when all was read; the tree is in scratch until then.
func applyVerified(ctx context.Context, root *layerTree, l v1.Layer, want v1.Hash) error {
	stored, err := l.Uncompressed()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	defer stored.Close()
	// The library looks at the first layer only to tell whether layers are compressed.
	plain, _, done, err := decompress(stored)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	defer done()
	if want.Algorithm != "sha256" {
		return fmt.Errorf("%w: hash algorithm %q", ErrBadImage, want.Algorithm)
	}
	hash := sha256.New()
	read := io.TeeReader(plain, hash)
	if err := root.apply(ctx, read); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, read); err != nil { // what follows the end of the tar stream
		return fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want.Hex {
		return fmt.Errorf("%w: its bytes hash to sha256:%s", ErrBadImage, got)
	}
	return nil
}

// decompress gives the plain bytes of a stream that may be compressed with gzip or zstd.
func decompress(r io.Reader) (plain io.Reader, compressed bool, done func(), err error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, nil, err
	}
	switch {
	case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, false, nil, err
		}
		return z, true, func() { z.Close() }, nil
	case string(head) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(buffered, zstd.WithDecoderMaxMemory(1<<30), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, false, nil, err
		}
		return z, true, z.Close, nil
	}
	return buffered, false, func() {}, nil
}
