package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// unpackTar unpacks a guest's tar stream below root. Its first path element becomes name, unless that is "".
//
// The stream is untrusted. Every path is opened through root, which lets none leave it, whatever symbolic links the
// stream has made; links are made as they are but never followed out. Set-user-id, set-group-id and sticky bits and
// owners are dropped; devices and the like are left out and counted.
func unpackTar(ctx context.Context, r io.Reader, root *os.Root, name string) (skipped int, err error) {
	tr := tar.NewReader(r)
	var folders []*tar.Header // their modes and times are set last: a read-only folder must first be filled
	entries := 0
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return skipped, err
		}
		entries++
		if h.Name, err = inside(h.Name, name); err != nil {
			return skipped, err
		}
		ok, err := unpackOne(tr, h, root, name)
		if err != nil {
			return skipped, fmt.Errorf("%s: %w", h.Name, err)
		}
		if !ok {
			skipped++
		}
		if h.Typeflag == tar.TypeDir {
			folders = append(folders, h)
		}
	}
	if entries == 0 {
		return 0, errors.New("nothing came out of the VM")
	}
	for i := len(folders) - 1; i >= 0; i-- {
		if err := finish(root, folders[i]); err != nil {
			return skipped, err
		}
	}
	return skipped, nil
}

// inside makes an entry's name relative and renames its first element. Names that point elsewhere are refused.
func inside(entry, name string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(entry, "/"))
	if !filepath.IsLocal(filepath.FromSlash(clean)) {
		return "", fmt.Errorf("the VM sent the path %q, which leads out of the target", entry)
	}
	if name == "" {
		return clean, nil
	}
	if clean == "." {
		return name, nil
	}
	_, rest, _ := strings.Cut(clean, "/")
	return path.Join(name, rest), nil
}

// unpackOne makes one entry; false when its kind is left out.
func unpackOne(tr *tar.Reader, h *tar.Header, root *os.Root, name string) (bool, error) {
	switch h.Typeflag {
	case tar.TypeDir:
		if info, err := root.Lstat(h.Name); err == nil && info.IsDir() {
			return true, nil
		}
		return true, root.Mkdir(h.Name, 0o700)
	case tar.TypeReg:
		if err := makeRoom(root, h.Name); err != nil {
			return true, err
		}
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return true, err
		}
		_, err = io.Copy(f, tr)
		if err = errors.Join(err, f.Close()); err != nil {
			return true, err
		}
		return true, finish(root, h)
	case tar.TypeSymlink:
		if err := makeRoom(root, h.Name); err != nil {
			return true, err
		}
		return true, root.Symlink(h.Linkname, h.Name)
	case tar.TypeLink:
		target, err := inside(h.Linkname, name)
		if err != nil {
			return true, err
		}
		if err := makeRoom(root, h.Name); err != nil {
			return true, err
		}
		return true, root.Link(target, h.Name)
	}
	return false, nil
}

// makeRoom removes what has an entry's name already, unless that is a folder.
func makeRoom(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errors.New("a folder of that name is in the way")
	}
	return root.Remove(name)
}

func finish(root *os.Root, h *tar.Header) error {
	if err := root.Chmod(h.Name, fs.FileMode(h.Mode).Perm()); err != nil {
		return err
	}
	if h.ModTime.IsZero() {
		return nil
	}
	return root.Chtimes(h.Name, time.Time{}, h.ModTime)
}
