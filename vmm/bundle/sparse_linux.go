package bundle

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nextData gives the first piece of the file at or after at that isn't a hole; from == to == end when there is none.
func nextData(f *os.File, at, end int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but a hole
		return end, end, nil
	}
	if err != nil {
		return 0, 0, &os.PathError{Op: "seek to data", Path: f.Name(), Err: err}
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, &os.PathError{Op: "seek to hole", Path: f.Name(), Err: err}
	}
	return from, min(to, end), nil
}
