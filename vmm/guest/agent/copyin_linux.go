package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

const xattrPrefix = "SCHILY.xattr."

// unpacker writes entries of a tar stream below one folder. The kernel resolves every path with that folder as its root,
// so neither "..", nor a link that is there already, nor one from the archive leads out of it.
type unpacker struct {
	root    int // descriptor of the folder
	folders []folderTimes
	buf     []byte
}

// folderTimes are set at the end, for unpacking into a folder changes its time.
type folderTimes struct {
	name     string
	accessed time.Time
	modified time.Time
}

// CopyIn unpacks a tar stream below dir, which must exist.
func (a *agent) CopyIn(_ context.Context, dir string, stream io.Reader) error {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &guest.AgentError{Code: guest.CodeNoDir, Message: fmt.Sprintf("the guest has no folder %s: %v", dir, err)}
	}
	defer unix.Close(root)
	u := &unpacker{root: root, buf: make([]byte, 32<<10)}
	archive := tar.NewReader(stream)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return u.finish()
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := u.unpack(h, archive); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func (u *unpacker) unpack(h *tar.Header, body io.Reader) error {
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return &guest.AgentError{Code: guest.CodeInvalid, Message: "only a folder can be the folder itself"}
		}
		u.folders = append(u.folders, folderTimes{name, h.AccessTime, h.ModTime})
		return u.onOpened(".", func(fd int) error { return u.own(fd, "", h) })
	}
	parent, err := u.parent(path.Dir(name))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := path.Base(name)
	if h.Typeflag == tar.TypeDir {
		return u.folder(parent, base, name, h)
	}
	if err := unix.Unlinkat(parent, base, 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("replace what is there: %w", err)
	}
	mode := uint32(h.Mode & 0o7777)
	device := int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		return u.file(parent, base, h, body)
	case tar.TypeLink:
		return u.hardLink(parent, base, h.Linkname)
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, parent, base)
	case tar.TypeChar:
		err = unix.Mknodat(parent, base, unix.S_IFCHR|mode, device)
	case tar.TypeBlock:
		err = unix.Mknodat(parent, base, unix.S_IFBLK|mode, device)
	case tar.TypeFifo:
		err = unix.Mknodat(parent, base, unix.S_IFIFO|mode, 0)
	default:
		return &guest.AgentError{Code: guest.CodeInvalid, Message: fmt.Sprintf("entries of kind %q are not known", h.Typeflag)}
	}
	if err != nil {
		return err
	}
	if err := u.own(parent, base, h); err != nil {
		return err
	}
	return setTimes(parent, base, h.AccessTime, h.ModTime)
}

// inside cleans an entry's name. A leading slash means the folder itself, as tar does it.
func inside(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", &guest.AgentError{Code: guest.CodeInvalid, Message: "its name leads out of the folder"}
		}
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// open opens a path below the root, with the root as its root.
func (u *unpacker) open(name string, flags uint64) (int, error) {
	return unix.Openat2(u.root, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// parent opens the folder an entry goes into, making those the archive didn't mention.
func (u *unpacker) parent(dir string) (int, error) {
	fd, err := u.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != unix.ENOENT || dir == "." {
		return fd, err
	}
	above, err := u.parent(path.Dir(dir))
	if err != nil {
		return -1, err
	}
	err = unix.Mkdirat(above, path.Base(dir), 0o755)
	unix.Close(above)
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	return u.open(dir, unix.O_PATH|unix.O_DIRECTORY)
}

func (u *unpacker) onOpened(name string, f func(fd int) error) error {
	fd, err := u.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

// folder makes a folder. One that is there already, or a link to one, is kept and gets the entry's owner and mode.
func (u *unpacker) folder(parent int, base, name string, h *tar.Header) error {
	err := unix.Mkdirat(parent, base, 0o700)
	if err == unix.EEXIST {
		if fd, oerr := u.open(name, unix.O_PATH|unix.O_DIRECTORY); oerr == nil {
			unix.Close(fd)
		} else if err = unix.Unlinkat(parent, base, 0); err == nil {
			err = unix.Mkdirat(parent, base, 0o700)
		} else {
			return fmt.Errorf("replace what is there: %w", err)
		}
	}
	if err != nil && err != unix.EEXIST {
		return err
	}
	u.folders = append(u.folders, folderTimes{name, h.AccessTime, h.ModTime})
	return u.onOpened(name, func(fd int) error { return u.own(fd, "", h) })
}

func (u *unpacker) file(parent int, base string, h *tar.Header, body io.Reader) error {
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, body, u.buf)
	if err == nil {
		err = u.own(fd, "", h)
	}
	if err == nil {
		err = setTimes(fd, "", h.AccessTime, h.ModTime)
	}
	return errors.Join(err, f.Close())
}

func (u *unpacker) hardLink(parent int, base, target string) error {
	name, err := inside(target)
	if err != nil {
		return err
	}
	dir, err := u.open(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("link to %s: %w", target, err)
	}
	defer unix.Close(dir)
	if err := unix.Linkat(dir, path.Base(name), parent, base, 0); err != nil {
		return fmt.Errorf("link to %s: %w", target, err)
	}
	return nil
}

// own sets owner, mode and extended attributes of the entry base in the folder fd, or of fd itself when base is "".
// Owner first: changing it clears set-user-id bits and capabilities.
func (u *unpacker) own(fd int, base string, h *tar.Header) error {
	if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("give it to %d:%d: %w", h.Uid, h.Gid, err)
	}
	link := h.Typeflag == tar.TypeSymlink
	if !link {
		var err error
		if mode := uint32(h.Mode & 0o7777); base == "" {
			err = unix.Fchmod(fd, mode)
		} else {
			err = unix.Fchmodat(fd, base, mode, 0) // just made by us, and no link
		}
		if err != nil {
			return fmt.Errorf("set its mode: %w", err)
		}
	}
	where := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", fd), base)
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok {
			continue
		}
		set := unix.Lsetxattr
		if base == "" {
			set = unix.Setxattr // through the link in /proc
		}
		// A file system without such attributes isn't a reason to refuse the file.
		if err := set(where, name, []byte(value), 0); err != nil && err != unix.ENOTSUP {
			return fmt.Errorf("set its attribute %s: %w", name, err)
		}
	}
	return nil
}

func setTimes(fd int, base string, accessed, modified time.Time) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	for i, t := range []time.Time{accessed, modified} {
		if !t.IsZero() {
			times[i] = unix.NsecToTimespec(t.UnixNano())
		}
	}
	if err := unix.UtimesNanoAt(fd, base, times, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set its times: %w", err)
	}
	return nil
}

// finish sets the folders' times, inner ones first.
func (u *unpacker) finish() error {
	for i := len(u.folders) - 1; i >= 0; i-- {
		f := u.folders[i]
		if err := u.onOpened(f.name, func(fd int) error { return setTimes(fd, "", f.accessed, f.modified) }); err != nil {
			return fmt.Errorf("unpack %s: %w", f.name, err)
		}
	}
	return nil
}
