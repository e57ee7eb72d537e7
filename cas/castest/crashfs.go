package castest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"flash/cas/local"
)

// ErrPowerCut is what every operation of a CrashFS answers after the cut.
var ErrPowerCut = errors.New("the power is cut")

// CrashFS is a file system in memory that keeps what a disk would keep when its power is cut.
//
// What Sync of a file has not covered may be there afterwards, or not, or in part, each write for itself. What SyncDir
// has not covered of a folder's creations, renames and removals may be there up to any point. What was covered is there.
//
// An operation is anything that changes or syncs; CutAt counts them. Reads are free.
type CrashFS struct {
	mu       sync.Mutex // guards the rest, the nodes too
	dirs     map[string]*crashDir
	locked   map[string]bool
	rng      *rand.Rand
	ops      int
	cutAt    int // 0: never
	cut      bool
	failAt   int // 0: never
	failOp   string
	failWith error
	room     int64 // bytes that may still be written; negative: no limit
}

var _ local.FS = (*CrashFS)(nil)

// NewCrashFS gives an empty file system. The seed decides what is left of what was not synced.
func NewCrashFS(seed uint64) *CrashFS {
	return &CrashFS{dirs: map[string]*crashDir{}, locked: map[string]bool{}, rng: rand.New(rand.NewPCG(seed, 1)), room: -1}
}

// CutAt cuts the power at the nth operation from now (1: the next): it has no effect, or, a write, perhaps part of it.
func (c *CrashFS) CutAt(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cutAt = c.ops + n
}

// FailAt makes the nth operation from now fail once with err and no effect. op is "write", "sync", "rename", "create",
// "remove", "truncate", "syncdir", or empty for any; only those are counted.
func (c *CrashFS) FailAt(n int, op string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failAt, c.failOp, c.failWith = n, op, err
}

// SetRoom limits the bytes that may still be written; negative takes the limit back.
func (c *CrashFS) SetRoom(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = bytes
}

// Ops is the number of operations so far.
func (c *CrashFS) Ops() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops
}

// HasCut tells whether the power is cut.
func (c *CrashFS) HasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// AfterCrash gives the file system as it is found when the power is back. It may be called at any time: the old one is
// cut then.
func (c *CrashFS) AfterCrash() *CrashFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	after := NewCrashFS(c.rng.Uint64())
	for _, name := range sortedKeys(c.dirs) {
		dir := c.dirs[name]
		names := cloneNames(dir.durable)
		for _, change := range dir.changes[:c.rng.IntN(len(dir.changes)+1)] {
			change.apply(names)
		}
		for _, file := range sortedKeys(names) {
			left := c.remains(names[file])
			names[file] = &crashNode{shown: left, durable: slices.Clone(left)}
		}
		after.dirs[name] = &crashDir{shown: names, durable: cloneNames(names)}
	}
	return after
}

// FlipBit damages a file where it lies.
func (c *CrashFS) FlipBit(name string, offset int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, n, err := c.lookup(name)
	if err != nil {
		return err
	}
	n.shown[offset] ^= 1
	if offset < int64(len(n.durable)) {
		n.durable[offset] ^= 1
	}
	return nil
}

// operate counts an operation and gives the error it shall end with. mu is held.
func (c *CrashFS) operate(op string) error {
	if c.cut {
		return ErrPowerCut
	}
	c.ops++
	if c.ops == c.cutAt {
		c.cut = true
		return ErrPowerCut
	}
	if c.failAt > 0 && (c.failOp == "" || c.failOp == op) {
		if c.failAt--; c.failAt == 0 {
			return c.failWith
		}
	}
	return nil
}

// MkdirAll makes folders that survive at once.
func (c *CrashFS) MkdirAll(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return ErrPowerCut
	}
	for dir = filepath.Clean(dir); c.dirs[dir] == nil; dir = filepath.Dir(dir) {
		c.dirs[dir] = &crashDir{shown: map[string]*crashNode{}, durable: map[string]*crashNode{}}
	}
	return nil
}

func (c *CrashFS) Create(name string) (local.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.operate("create"); err != nil {
		return nil, err
	}
	d, n, err := c.lookup(name)
	if d == nil {
		return nil, err
	}
	if n != nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	n = &crashNode{}
	d.change(dirChange{{filepath.Base(name), n}})
	return &crashFile{c: c, n: n, writable: true}, nil
}

func (c *CrashFS) Open(name string) (local.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, ErrPowerCut
	}
	_, n, err := c.lookup(name)
	if err != nil {
		return nil, err
	}
	return &crashFile{c: c, n: n}, nil
}

// OpenToWrite opens a file that exists for reading and writing.
func (c *CrashFS) OpenToWrite(name string) (local.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, ErrPowerCut
	}
	_, n, err := c.lookup(name)
	if err != nil {
		return nil, err
	}
	return &crashFile{c: c, n: n, writable: true}, nil
}

func (c *CrashFS) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.operate("rename"); err != nil {
		return err
	}
	d, n, err := c.lookup(from)
	if err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("rename %s to %s: between folders", from, to)
	}
	d.change(dirChange{{filepath.Base(from), nil}, {filepath.Base(to), n}})
	return nil
}

func (c *CrashFS) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.operate("remove"); err != nil {
		return err
	}
	d, _, err := c.lookup(name)
	if err != nil {
		return err
	}
	d.change(dirChange{{filepath.Base(name), nil}})
	return nil
}

func (c *CrashFS) List(dir string) ([]local.FileInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, ErrPowerCut
	}
	d, err := c.dir(dir)
	if err != nil {
		return nil, err
	}
	var infos []local.FileInfo
	for _, name := range sortedKeys(d.shown) {
		infos = append(infos, local.FileInfo{Name: name, Bytes: int64(len(d.shown[name].shown))})
	}
	return infos, nil
}

// Folders lists the folders in a folder.
func (c *CrashFS) Folders(dir string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, name := range sortedKeys(c.dirs) {
		if dir = filepath.Clean(dir); name != dir && filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names
}

func (c *CrashFS) SyncDir(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.operate("syncdir"); err != nil {
		return err
	}
	d, err := c.dir(dir)
	if err != nil {
		return err
	}
	d.durable, d.changes = cloneNames(d.shown), nil
	return nil
}

// SyncName makes durable that a file has its name, and what was changed in its folder before it got it: what journaling
// file systems do when the file is synced, and POSIX doesn't promise. It is no operation of its own.
func (c *CrashFS) SyncName(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return ErrPowerCut
	}
	d, n, err := c.lookup(name)
	if err != nil {
		return err
	}
	for i := len(d.changes) - 1; i >= 0; i-- {
		if !d.changes[i].names(n) {
			continue
		}
		for _, change := range d.changes[:i+1] {
			change.apply(d.durable)
		}
		d.changes = d.changes[i+1:]
		break
	}
	return nil
}

func (c *CrashFS) Lock(name string) (io.Closer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked[name] {
		return nil, fmt.Errorf("%s: %w", name, local.ErrLocked)
	}
	c.locked[name] = true
	return unlocker(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.locked, name)
	}), nil
}

type unlocker func()

func (c *CrashFS) FreeBytes(string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room < 0 {
		return 1 << 40, nil
	}
	return c.room, nil
}
