package castest

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// crashNode is a file.
type crashNode struct {
	shown   []byte
	durable []byte
	writes  []crashWrite // since the last Sync, oldest first
}

// crashWrite is a write, or, without bytes, a truncation to offset.
type crashWrite struct {
	offset int64
	bytes  []byte
}

// remains gives what a disk has of a file: all that was synced, and of each later write all, nothing or a part.
func (c *CrashFS) remains(n *crashNode) []byte {
	left := slices.Clone(n.durable)
	for _, w := range n.writes {
		switch c.rng.IntN(3) {
		case 0:
			left = w.apply(left)
		case 1:
			if w.bytes != nil {
				left = crashWrite{w.offset, w.bytes[:c.rng.IntN(len(w.bytes)+1)]}.apply(left)
			}
		}
	}
	return left
}

func (w crashWrite) apply(p []byte) []byte {
	if w.bytes == nil { // truncation
		return grow(p, w.offset)[:w.offset]
	}
	p = grow(p, w.offset+int64(len(w.bytes)))
	copy(p[w.offset:], w.bytes)
	return p
}

func grow(p []byte, size int64) []byte {
	if int64(len(p)) < size {
		p = append(p, make([]byte, size-int64(len(p)))...)
	}
	return p
}

func (u unlocker) Close() error { u(); return nil }

// crashFile is an open crashNode.
type crashFile struct {
	c        *CrashFS
	n        *crashNode
	writable bool
	closed   bool
}

func (f *crashFile) ReadAt(p []byte, offset int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	switch {
	case f.c.cut:
		return 0, ErrPowerCut
	case f.closed:
		return 0, fs.ErrClosed
	case offset >= int64(len(f.n.shown)):
		return 0, io.EOF
	}
	n := copy(p, f.n.shown[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) WriteAt(p []byte, offset int64) (int, error) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed || !f.writable {
		return 0, fs.ErrInvalid
	}
	wasCut := c.cut
	err := c.operate("write")
	n := len(p)
	switch {
	case c.cut && !wasCut:
		n = c.rng.IntN(len(p) + 1) // what the device had taken by then
	case err != nil:
		return 0, err
	case c.room >= 0 && int64(n) > c.room:
		n, err = int(c.room), syscall.ENOSPC
	}
	w := crashWrite{offset, slices.Clone(p[:n])}
	if n > 0 {
		f.n.shown = w.apply(f.n.shown)
		f.n.writes = append(f.n.writes, w)
	}
	if c.room >= 0 {
		c.room -= int64(n)
	}
	return n, err
}

func (f *crashFile) Truncate(size int64) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.operate("truncate"); err != nil {
		return err
	}
	w := crashWrite{offset: size}
	f.n.shown = w.apply(f.n.shown)
	f.n.writes = append(f.n.writes, w)
	return nil
}

// Sync makes the file durable. When it is made to fail, what wasn't durable is lost to the disk, though it is still
// shown, and a later Sync says nothing of it: so does Linux.
func (f *crashFile) Sync() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.operate("sync"); err != nil {
		if !f.c.cut {
			f.n.writes = nil
		}
		return err
	}
	for _, w := range f.n.writes {
		f.n.durable = w.apply(f.n.durable)
	}
	f.n.writes = nil
	return nil
}

func (f *crashFile) Size() (int64, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return int64(len(f.n.shown)), nil
}

func (f *crashFile) Close() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.closed = true
	return nil
}
