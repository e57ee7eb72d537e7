package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// maxIndexDepth bounds indexes that name indexes. Real ones have one level for platforms.
const maxIndexDepth = 4

// maxManifests bounds the entries of one index.
const maxManifests = 1024

// layoutFind is an image that an index names.
type layoutFind struct {
	index v1.ImageIndex
	desc  v1.Descriptor
}

// openLayout opens the image for this host's architecture in an OCI layout.
func openLayout(dir string) (v1.Image, string, error) {
	for _, name := range []string{"oci-layout", "index.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, "", fmt.Errorf("%w: the folder has no %s", ErrNotImage, name)
		}
		if !info.Mode().IsRegular() || info.Size() > maxJSONBytes {
			return nil, "", fmt.Errorf("%w: %s has %d bytes", ErrBadImage, name, info.Size())
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrNotImage, err)
	}
	found, err := imagesFor(dir, top, runtime.GOARCH, 0)
	if err != nil {
		return nil, "", err
	}
	if len(found) != 1 {
		var names []string
		for _, f := range found {
			names = append(names, f.desc.Digest.String())
		}
		return nil, "", fmt.Errorf("%w: it holds %d images for linux/%s, and one is wanted (%.600s)",
			ErrNotImage, len(found), runtime.GOARCH, strings.Join(names, ", "))
	}
	desc := found[0].desc
	if err := checkBlob(dir, desc.Digest); err != nil {
		return nil, "", err
	}
	img, err := found[0].index.Image(desc.Digest)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, "", fmt.Errorf("%w: its manifest: %w", ErrBadImage, err)
	}
	if len(manifest.Layers) > maxLayers {
		return nil, "", fmt.Errorf("%w: it has %d layers", ErrBadImage, len(manifest.Layers))
	}
	if err := checkBlob(dir, manifest.Config.Digest); err != nil {
		return nil, "", err
	}
	ref := desc.Annotations["io.containerd.image.name"]
	if ref == "" {
		ref = desc.Annotations["org.opencontainers.image.ref.name"]
	}
	return img, ref[:min(len(ref), 512)], nil
}

// imagesFor lists the images for an architecture that an index names, directly or by way of further indexes. An image
// of which the index says no platform is one: its configuration is checked later.
func imagesFor(dir string, index v1.ImageIndex, arch string, depth int) ([]layoutFind, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("%w: its index: %w", ErrBadImage, err)
	}
	if depth >= maxIndexDepth || len(manifest.Manifests) > maxManifests {
		return nil, fmt.Errorf("%w: an index of %d entries at depth %d", ErrBadImage, len(manifest.Manifests), depth)
	}
	var found []layoutFind
	for _, desc := range manifest.Manifests {
		switch p := desc.Platform; {
		case desc.MediaType.IsIndex():
			if err := checkBlob(dir, desc.Digest); err != nil {
				return nil, err
			}
			below, err := index.ImageIndex(desc.Digest)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrBadImage, err)
			}
			more, err := imagesFor(dir, below, arch, depth+1)
			if err != nil {
				return nil, err
			}
			if found = append(found, more...); len(found) > maxManifests {
				return nil, fmt.Errorf("%w: more than %d images", ErrBadImage, maxManifests)
			}
		case !desc.MediaType.IsImage():
		case p != nil && (p.OS != "linux" || p.Architecture != arch): // another platform, or an attestation ("unknown")
		default:
			found = append(found, layoutFind{index, desc})
		}
	}
	return found, nil
}

// checkBlob checks the hash of a blob that is about to be read whole as JSON, and that it is small enough for that.
func checkBlob(dir string, h v1.Hash) error {
	if h.Algorithm != "sha256" || len(h.Hex) != sha256.Size*2 {
		return fmt.Errorf("%w: a reference to %.100q", ErrBadImage, h.String())
	}
	at := filepath.Join(dir, "blobs", h.Algorithm, h.Hex)
	info, err := os.Stat(at)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: blob %s is missing", ErrBadImage, h)
	}
	if err != nil {
		return err
	}
	if info.Size() > maxJSONBytes {
		return fmt.Errorf("%w: blob %s has %d bytes and should be a small text", ErrBadImage, h, info.Size())
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != h.Hex {
		return fmt.Errorf("%w: blob %s hashes to %x", ErrBadImage, h, got)
	}
	return nil
}
