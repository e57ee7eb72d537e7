package cli

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// packTar writes the file or folder at from as a tar stream in which it is called name. Owners become root, for the
// guest doesn't know ours; what is neither file, folder nor symbolic link is left out. Symbolic links are kept as links.
func packTar(ctx context.Context, w io.Writer, from, name string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return packOne(tw, p, path.Join(name, filepath.ToSlash(rel)))
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packOne(tw *tar.Writer, p, name string) error {
	info, err := os.Lstat(p)
	if err != nil {
		return err
	}
	link := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	default:
		return nil
	}
	var f *os.File
	if info.Mode().IsRegular() {
		// Opened before its header is written, and measured by the descriptor: the name may become another file meanwhile.
		if f, err = os.Open(p); err != nil {
			return err
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s changed while it was copied", p)
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	h.Format = tar.FormatPAX // long names, times below a second
	if err := tw.WriteHeader(h); err != nil || f == nil {
		return err
	}
	if n, err := io.CopyN(tw, f, h.Size); err != nil {
		return fmt.Errorf("%s changed while it was copied: %d bytes of %d: %w", p, n, h.Size, err)
	}
	return nil
}
