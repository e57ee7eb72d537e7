package bundle

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ensureFolder makes a folder of an untrusted tree if there is none, with the folders above it. Links are resolved
// inside the tree, so that this can't write elsewhere either.
func (t *layerTree) ensureFolder(name string, mode uint32) error {
	if fd, err := t.folder(name, false); err == nil {
		return unix.Close(fd)
	}
	fd, err := t.folder(name, true)
	if err != nil {
		return fmt.Errorf("%w: it leaves no place for /%s: %w", ErrBadImage, name, err)
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// ensureFile makes a file of an untrusted tree. An existing one stays unless it is empty or replace is set.
func (t *layerTree) ensureFile(name string, mode uint32, text []byte, replace bool) error {
	p, err := t.at(name, true)
	if err != nil {
		return fmt.Errorf("%w: it leaves no place for /%s: %w", ErrBadImage, name, err)
	}
	defer p.close()
	var st unix.Stat_t
	switch err := unix.Fstatat(p.fd, p.key.base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return fmt.Errorf("/%s: %w", name, err)
	case !replace && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0):
		return nil
	default:
		if err := t.remove(p.fd, p.key); err != nil {
			return err
		}
	}
	fd, err := unix.Openat(p.fd, p.key.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	defer unix.Close(fd)
	for len(text) > 0 {
		n, err := unix.Write(fd, text)
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
		text = text[n:]
	}
	return unix.Fchmod(fd, mode)
}
