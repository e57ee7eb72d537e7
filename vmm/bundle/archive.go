package bundle

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// maxArchiveEntries bounds the files of an archive: a layer is one of them.
const maxArchiveEntries = 1 << 16

// openImage opens what path is: a folder with an OCI layout, a tar of one, or a docker-save archive; archives may be
// compressed. ref is the name the image was saved under.
func (b *builder) openImage(ctx context.Context, file string) (img v1.Image, ref string, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("%w: there is no such file or folder", ErrInvalid)
	}
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		return openLayout(file)
	}
	if !info.Mode().IsRegular() {
		return nil, "", fmt.Errorf("%w: it is neither a file nor a folder", ErrNotImage)
	}
	if file, err = b.plainArchive(ctx, file); err != nil {
		return nil, "", err
	}
	a, err := scanArchive(ctx, file)
	if err != nil {
		return nil, "", err
	}
	switch {
	case a.manifest != nil:
		return a.openDockerSave()
	case a.has("index.json") && a.has("oci-layout"):
		dir := filepath.Join(b.scratch, "layout")
		if err := a.extractLayout(ctx, dir); err != nil {
			return nil, "", err
		}
		return openLayout(dir)
	}
	return nil, "", fmt.Errorf("%w: there is neither manifest.json (docker save) nor index.json (OCI layout) in it, or it was cut short", ErrNotImage)
}

// plainArchive gives the archive, decompressed into scratch if need be: its parts are read in another order than stored.
func (b *builder) plainArchive(ctx context.Context, file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	plain, compressed, done, err := decompress(in)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotImage, err)
	}
	defer done()
	if !compressed {
		return file, nil
	}
	b.step("decompress the archive", 0, 0, "")
	out, err := os.Create(filepath.Join(b.scratch, "archive.tar"))
	if err != nil {
		return "", err
	}
	defer out.Close()
	n, err := io.Copy(out, io.LimitReader(&ctxReader{ctx, plain}, defaultLimits.bytes+1))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	if n > defaultLimits.bytes {
		return "", fmt.Errorf("%w: it has more than %d bytes", ErrBadImage, defaultLimits.bytes)
	}
	return out.Name(), out.Close()
}

// ctxReader ends with its context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// archive is what a tar file was found to hold.
type archive struct {
	file     string
	sizes    map[string]int64 // of regular files, by clean name
	manifest tarball.Manifest // of docker save; nil: none
}

func (a *archive) has(name string) bool { _, ok := a.sizes[name]; return ok }

// scanArchive lists an archive's files.
func scanArchive(ctx context.Context, file string) (*archive, error) {
	a := &archive{file: file, sizes: map[string]int64{}}
	var entries int
	err := a.each(ctx, func(h *tar.Header, r io.Reader) error {
		if entries++; entries > maxArchiveEntries {
			return fmt.Errorf("%w: more than %d files", ErrBadImage, maxArchiveEntries)
		}
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		name := path.Clean(h.Name)
		a.sizes[name] = h.Size
		if name != "manifest.json" {
			return nil
		}
		if h.Size > maxJSONBytes {
			return fmt.Errorf("%w: manifest.json has %d bytes", ErrBadImage, h.Size)
		}
		if err := json.NewDecoder(r).Decode(&a.manifest); err != nil {
			return fmt.Errorf("%w: manifest.json: %w", ErrBadImage, err)
		}
		if a.manifest == nil {
			return fmt.Errorf("%w: manifest.json is empty", ErrBadImage)
		}
		return nil
	})
	if err == nil && entries == 0 {
		err = fmt.Errorf("%w: it is empty", ErrNotImage)
	}
	return a, err
}

// each calls do for every entry.
func (a *archive) each(ctx context.Context, do func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(a.file)
	if err != nil {
		return err
	}
	defer f.Close()
	for r, first := tar.NewReader(f), true; ; first = false {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && first:
			return fmt.Errorf("%w: it isn't a tar file (%w)", ErrNotImage, err)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrBadImage, err)
		}
		if err := do(h, r); err != nil {
			return err
		}
	}
}

// openDockerSave opens the one image of a docker-save archive.
func (a *archive) openDockerSave() (v1.Image, string, error) {
	if len(a.manifest) != 1 {
		var names []string
		for _, m := range a.manifest {
			names = append(names, m.RepoTags...)
		}
		return nil, "", fmt.Errorf("%w: it holds %d images (%.400s); save one by itself", ErrNotImage, len(a.manifest), strings.Join(names, ", "))
	}
	m := a.manifest[0]
	if size, ok := a.sizes[path.Clean(m.Config)]; !ok || size > maxJSONBytes {
		return nil, "", fmt.Errorf("%w: its configuration %.100q is missing or has %d bytes", ErrBadImage, m.Config, size)
	}
	if len(m.Layers) > maxLayers {
		return nil, "", fmt.Errorf("%w: it has %d layers", ErrBadImage, len(m.Layers))
	}
	img, err := tarball.ImageFromPath(a.file, nil)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	var ref string
	if len(m.RepoTags) > 0 && len(m.RepoTags[0]) < 512 {
		ref = m.RepoTags[0]
	}
	return img, ref, nil
}

// layoutFile is what belongs to an OCI layout; nothing else is taken out of an archive.
var layoutFile = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha(256|512)/[0-9a-f]{64,128})$`)

// extractLayout unpacks a tar of an OCI layout.
func (a *archive) extractLayout(ctx context.Context, dir string) error {
	for _, d := range []string{"blobs/sha256", "blobs/sha512"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return a.each(ctx, func(h *tar.Header, r io.Reader) error {
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || !layoutFile.MatchString(name) {
			return nil
		}
		out, err := os.Create(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		defer out.Close()
		if _, err := io.Copy(out, &ctxReader{ctx, r}); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: %w", ErrBadImage, err)
			}
			return err
		}
		return out.Close()
	})
}
