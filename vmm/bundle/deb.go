package bundle

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
)

// maxPackageFile bounds one file of a package that is kept in memory.
const maxPackageFile = 256 << 20

// readDeb calls each for every regular file in a Debian package, without unpacking it anywhere. name is clean and
// relative; the data is read only if take says so.
func readDeb(ctx context.Context, file string, take func(name string) bool, each func(name string, data []byte) error) error {
	_, err := command{
		name: "dpkg-deb", pkg: "dpkg",
		args: []string{"--fsys-tarfile", file},
		stdout: func(r io.Reader) error {
			for t := tar.NewReader(r); ; {
				h, err := t.Next()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				name := path.Clean("/" + h.Name)[1:]
				if h.Typeflag != tar.TypeReg || !take(name) {
					continue
				}
				if h.Size > maxPackageFile {
					return fmt.Errorf("%s has %d bytes", name, h.Size)
				}
				data := make([]byte, h.Size)
				if _, err := io.ReadFull(t, data); err != nil {
					return err
				}
				if err := each(name, data); err != nil {
					return err
				}
			}
		},
	}.run(ctx)
	if err != nil {
		return fmt.Errorf("package %s: %w", filepath.Base(file), err)
	}
	return nil
}
