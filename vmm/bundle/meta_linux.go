package bundle

import (
	"archive/tar"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// setMeta gives the file at p its owner, mode, attributes and time, in the order in which each survives the next:
// a change of owner clears set-uid bits and capabilities.
func (t *layerTree) setMeta(p place, h *tar.Header) error {
	const maxID = 1<<32 - 2
	if h.Uid < 0 || h.Uid > maxID || h.Gid < 0 || h.Gid > maxID {
		return fmt.Errorf("%w: owner %d:%d", ErrBadImage, h.Uid, h.Gid)
	}
	if err := unix.Fchownat(p.fd, p.key.base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set its owner: %w", err)
	}
	if h.Typeflag != tar.TypeSymlink {
		// p's name was just made, or is a folder, so it isn't a link that could be followed.
		if err := unix.Fchmodat(p.fd, p.key.base, uint32(h.Mode&0o7777), 0); err != nil {
			return fmt.Errorf("set its mode: %w", err)
		}
	}
	xattrs, err := layerXattrs(h)
	if err != nil {
		return err
	}
	for name, value := range xattrs {
		if err := unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", p.fd, p.key.base), name, value, 0); err != nil {
			return fmt.Errorf("set its extended attribute %q: %w", name, err)
		}
	}
	return p.setTime(timeOf(h.ModTime))
}

func (p place) setTime(at [2]int64) error {
	ts := unix.Timespec{Sec: at[0], Nsec: at[1]}
	if err := unix.UtimesNanoAt(p.fd, p.key.base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set its time: %w", err)
	}
	return nil
}

// setFolderTime sets the time of a folder of this layer, unless the layer has put something else in its place since.
func (t *layerTree) setFolderTime(name string, at [2]int64) error {
	if name == "" {
		return place{fd: t.fd, key: placeKey{base: "."}}.setTime(at)
	}
	p, err := t.at(name, false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.setTime(at); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// timeOf gives a time as the kernel takes it. The zero time of an entry without one is the epoch.
func timeOf(t time.Time) [2]int64 {
	if t.IsZero() {
		return [2]int64{}
	}
	return [2]int64{t.Unix(), int64(t.Nanosecond())}
}
