package bundle

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// opaque takes away what lower layers have put into a folder.
func (t *layerTree) opaque(name string) error {
	fd, err := t.folder(name, false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // there was nothing to take away
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return t.eachIn(fd, func(key placeKey) error { return t.removeLower(place{fd: fd, key: key}) })
}

// removeLower removes what is at p as far as lower layers brought it: all of it, or, when this layer has brought the name
// too, what is below.
func (t *layerTree) removeLower(p place) error {
	if !t.fresh[p.key] {
		return t.remove(p.fd, p.key)
	}
	fd, err := openFolder(p.fd, p.key.base)
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	return t.eachIn(fd, func(key placeKey) error { return t.removeLower(place{fd: fd, key: key}) })
}

// remove removes what is there with everything below it. No link is followed. That it is gone already is fine.
func (t *layerTree) remove(dirfd int, key placeKey) error {
	delete(t.fresh, key)
	fd, err := openFolder(dirfd, key.base)
	if err != nil {
		return err
	}
	flags := 0
	if fd >= 0 {
		flags = unix.AT_REMOVEDIR
		err = t.eachIn(fd, func(below placeKey) error { return t.remove(fd, below) })
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(dirfd, key.base, flags); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %q: %w", key.base, err)
	}
	return nil
}

// openFolder opens a folder; the descriptor is -1 when there is something else, or nothing.
func openFolder(dirfd int, base string) (int, error) {
	fd, err := unix.Openat(dirfd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
		return -1, nil
	}
	return -1, fmt.Errorf("open %q: %w", base, err)
}

// eachIn calls do for every entry of a folder.
func (t *layerTree) eachIn(fd int, do func(placeKey) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	// A descriptor of its own: os.File closes the one it is given, and reading needs its own position.
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(again), ".")
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, base := range names {
		if err := do(placeKey{folder: st.Ino, base: base}); err != nil {
			return err
		}
	}
	return nil
}
