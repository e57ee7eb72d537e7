package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// packer writes files into a tar stream.
type packer struct {
	archive *tar.Writer
	device  uint64           // of the file system the top is on
	first   map[inode]string // name of the first entry of files with several names
	buf     []byte
}

type inode struct{ device, number uint64 }

// CopyOut packs a file or a folder, named relative to its parent. Links are packed as links. It stays on one file system:
// mount points are packed as empty folders. Sockets are left out.
func (a *agent) CopyOut(ctx context.Context, name string, stream io.Writer) error {
	name = filepath.Clean("/" + name)
	var s unix.Stat_t
	if err := unix.Lstat(name, &s); err != nil {
		return &guest.AgentError{Code: guest.CodeNotFound, Message: fmt.Sprintf("the guest has no file %s: %v", name, err)}
	}
	parent, err := unix.Open(filepath.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := filepath.Base(name)
	if name == "/" {
		base = "."
	}
	p := &packer{archive: tar.NewWriter(stream), device: uint64(s.Dev), first: map[inode]string{}, buf: make([]byte, 32<<10)}
	if err := p.pack(ctx, parent, base, base); err != nil {
		return err
	}
	return p.archive.Close()
}

// pack packs the entry base of the folder parent, and everything below it.
func (p *packer) pack(ctx context.Context, parent int, base, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var s unix.Stat_t
	if err := unix.Fstatat(parent, base, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return nil // it went away while we were packing
		}
		return fmt.Errorf("pack %s: %w", name, err)
	}
	h := &tar.Header{
		Name: name, Mode: int64(s.Mode & 0o7777), Uid: int(s.Uid), Gid: int(s.Gid), Format: tar.FormatPAX,
		ModTime: time.Unix(s.Mtim.Unix()), PAXRecords: map[string]string{},
	}
	if err := readXattrs(parent, base, h.PAXRecords); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	var err error
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = p.folder(ctx, parent, base, h, uint64(s.Dev))
	case unix.S_IFREG:
		err = p.file(parent, base, h, s)
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = readLink(parent, base); err == nil {
			err = p.archive.WriteHeader(h)
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if s.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(uint64(s.Rdev))), int64(unix.Minor(uint64(s.Rdev)))
		err = p.archive.WriteHeader(h)
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
		err = p.archive.WriteHeader(h)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}

func (p *packer) folder(ctx context.Context, parent int, base string, h *tar.Header, device uint64) error {
	name := h.Name
	h.Typeflag, h.Name = tar.TypeDir, name+"/"
	if err := p.archive.WriteHeader(h); err != nil {
		return err
	}
	if device != p.device {
		return nil
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, inner := range names {
		if err := p.pack(ctx, fd, inner, name+"/"+inner); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) file(parent int, base string, h *tar.Header, s unix.Stat_t) error {
	if s.Nlink > 1 {
		id := inode{uint64(s.Dev), s.Ino}
		if first, ok := p.first[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.archive.WriteHeader(h)
		}
		p.first[id] = h.Name
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, s.Size
	if err := p.archive.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.archive}, struct{ io.Reader }{io.LimitReader(f, s.Size)}, p.buf)
	if err == nil && n < s.Size {
		err = fmt.Errorf("it shrank from %d to %d bytes while it was being packed", s.Size, n)
	}
	return err
}

func readLink(parent int, base string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(parent, base, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// readXattrs puts an entry's extended attributes into records as tar programs do. Those of the kernel's own policies stay.
func readXattrs(parent int, base string, records map[string]string) error {
	where := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", parent), base)
	n, err := unix.Llistxattr(where, nil)
	if err == unix.ENOTSUP || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	list := make([]byte, n)
	if n, err = unix.Llistxattr(where, list); err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if name == "" || name == "security.selinux" {
			continue
		}
		value := make([]byte, 64<<10) // the most there can be
		n, err := unix.Lgetxattr(where, name, value)
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		records[xattrPrefix+name] = string(value[:n])
	}
	return nil
}
