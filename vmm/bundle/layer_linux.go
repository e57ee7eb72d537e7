package bundle

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// layerTree is a folder that layers are applied to, one after the other. It is not safe for concurrent use.
type layerTree struct {
	fd             int // of the root folder
	limits         layerLimits
	entries, bytes int64
	buf            []byte

	// Of the layer being applied:
	fresh map[placeKey]bool   // names it has brought
	times map[string][2]int64 // folders whose time is set when all is in them: seconds, nanoseconds
}

// placeKey names an entry of a folder whatever path led to it.
type placeKey struct {
	folder uint64 // inode number
	base   string
}

// place is where an entry goes: an open folder and a name in it.
type place struct {
	fd  int
	key placeKey
}

func openLayerTree(dir string, limits layerLimits) (*layerTree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &layerTree{fd: fd, limits: limits, buf: make([]byte, 256<<10)}, nil
}

// Close ends the use of the folder.
func (t *layerTree) Close() error { return unix.Close(t.fd) }

// apply applies one layer, a plain tar stream.
func (t *layerTree) apply(ctx context.Context, layer io.Reader) error {
	t.fresh, t.times = map[placeKey]bool{}, map[string][2]int64{}
	for r := tar.NewReader(layer); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBadImage, err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if t.entries++; t.entries > int64(t.limits.entries) {
			return fmt.Errorf("%w: more than %d files", ErrBadImage, t.limits.entries)
		}
		if err := t.entry(ctx, h, r); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
	for name, at := range t.times {
		if err := t.setFolderTime(name, at); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
	}
	return nil
}

// entry applies one entry.
func (t *layerTree) entry(ctx context.Context, h *tar.Header, data io.Reader) error {
	name, kind, err := parseEntryName(h.Name)
	if err != nil {
		return err
	}
	switch kind {
	case entryNothing:
		return nil
	case entryWhiteout:
		p, err := t.at(name, false)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil // there was nothing to take away
		}
		if err != nil {
			return err
		}
		defer p.close()
		return t.removeLower(p)
	case entryOpaque:
		return t.opaque(name)
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: the root isn't a folder", ErrBadImage)
		}
		t.times[""] = timeOf(h.ModTime)
		return t.setMeta(place{fd: t.fd, key: placeKey{base: "."}}, h)
	}
	p, err := t.at(name, true)
	if err != nil {
		return err
	}
	defer p.close()
	if err := t.create(ctx, p, h, data); err != nil {
		return err
	}
	t.fresh[p.key] = true
	if h.Typeflag == tar.TypeLink {
		return nil // the file has its owner and mode already
	}
	if h.Typeflag == tar.TypeDir {
		t.times[name] = timeOf(h.ModTime)
	}
	return t.setMeta(p, h)
}

// create makes the file at p, instead of what is there.
func (t *layerTree) create(ctx context.Context, p place, h *tar.Header, data io.Reader) error {
	var linkTo place
	if h.Typeflag == tar.TypeLink {
		// Found first: it may be a lower layer's file of this very name.
		var err error
		if linkTo, err = t.linkTarget(h.Linkname); err != nil {
			return err
		}
		defer linkTo.close()
		if linkTo.key == p.key {
			return nil
		}
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(p.fd, p.key.base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR && h.Typeflag == tar.TypeDir:
		return nil
	default:
		if err := t.remove(p.fd, p.key); err != nil {
			return err
		}
	}
	mode := uint32(h.Mode & 0o7777)
	switch h.Typeflag {
	case tar.TypeDir:
		return unix.Mkdirat(p.fd, p.key.base, 0o700)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.writeFile(ctx, p, h.Size, data)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxNameBytes {
			return fmt.Errorf("%w: a symbolic link to %.60q", ErrBadImage, h.Linkname)
		}
		return unix.Symlinkat(h.Linkname, p.fd, p.key.base)
	case tar.TypeLink:
		err := unix.Linkat(linkTo.fd, linkTo.key.base, p.fd, p.key.base, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: a hard link to %.200q, which isn't a file: %w", ErrBadImage, h.Linkname, err)
		}
		return err
	case tar.TypeFifo:
		return unix.Mknodat(p.fd, p.key.base, unix.S_IFIFO|mode, 0)
	case tar.TypeChar, tar.TypeBlock:
		if h.Devmajor < 0 || h.Devmajor > 0xfff || h.Devminor < 0 || h.Devminor > 0xfffff {
			return fmt.Errorf("%w: device %d:%d", ErrBadImage, h.Devmajor, h.Devminor)
		}
		kind := uint32(unix.S_IFCHR)
		if h.Typeflag == tar.TypeBlock {
			kind = unix.S_IFBLK
		}
		// Made without permissions, so that it is of no use while it lies in scratch.
		return unix.Mknodat(p.fd, p.key.base, kind, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	}
	return fmt.Errorf("%w: an entry of type %q", ErrBadImage, h.Typeflag)
}

// linkTarget finds what a hard link names. A hard link's target is a path from the root, as the entry's own name is.
func (t *layerTree) linkTarget(name string) (place, error) {
	clean, kind, err := parseEntryName(name)
	if err != nil {
		return place{}, err
	}
	if kind != entryFile || clean == "" {
		return place{}, fmt.Errorf("%w: a hard link to %.200q", ErrBadImage, name)
	}
	p, err := t.at(clean, false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return place{}, fmt.Errorf("%w: a hard link to %.200q, which doesn't exist", ErrBadImage, name)
	}
	return p, err
}

// writeFile makes a file at p. Blocks of zeros become holes.
func (t *layerTree) writeFile(ctx context.Context, p place, size int64, data io.Reader) error {
	if t.bytes += size; size < 0 || t.bytes > t.limits.bytes {
		return fmt.Errorf("%w: its files have more than %d bytes", ErrDiskTooSmall, t.limits.bytes)
	}
	fd, err := unix.Openat(p.fd, p.key.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(data, t.buf[:min(int64(len(t.buf)), size-at)])
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBadImage, err)
		}
		for off := 0; off < n && !isZero(t.buf[:n]); {
			w, err := unix.Pwrite(fd, t.buf[off:n], at+int64(off))
			if err != nil {
				return err
			}
			off += w
		}
		at += int64(n)
	}
	return unix.Ftruncate(fd, size)
}

// at opens the folder that name lies in; create makes the folders that are missing.
func (t *layerTree) at(name string, create bool) (place, error) {
	dir, base := path.Split(name)
	fd, err := t.folder(strings.TrimSuffix(dir, "/"), create)
	if err != nil {
		return place{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return place{}, err
	}
	return place{fd: fd, key: placeKey{folder: st.Ino, base: base}}, nil
}

func (p place) close() { unix.Close(p.fd) }

// folder opens a folder by its path inside the tree, links resolved as they would be by a process confined to it.
func (t *layerTree) folder(name string, create bool) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	where := name
	if where == "" {
		where = "."
	}
	fd, err := unix.Openat2(t.fd, where, &how)
	if !create || !errors.Is(err, unix.ENOENT) || name == "" {
		if err != nil {
			return -1, fmt.Errorf("folder %.200q: %w", name, err)
		}
		return fd, nil
	}
	parent, err := t.at(name, true)
	if err != nil {
		return -1, err
	}
	defer parent.close()
	if err := unix.Mkdirat(parent.fd, parent.key.base, 0o755); err != nil {
		return -1, fmt.Errorf("folder %.200q: %w", name, err) // EEXIST: a link to nowhere
	}
	if fd, err = unix.Openat2(t.fd, where, &how); err != nil {
		return -1, fmt.Errorf("folder %.200q: %w", name, err)
	}
	return fd, nil
}
