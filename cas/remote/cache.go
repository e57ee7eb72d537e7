package remote

import (
	"container/list"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flash/cas"
)

// WindowBytes is the length of a window: what one small read of a pack object fetches.
const WindowBytes = 32 << 10 // some 12 pages; of an encrypted object half a segment

const tmpSuffix = ".tmp"

// windowKey names a window.
type windowKey struct {
	object cas.Hash // the pack's content hash
	n      uint32
}

// cache keeps windows as files, the ones used last, within a budget. Its folder belongs to one process. All methods do
// nothing when there is no folder. A file that can't be written costs another request later, and a line in the log.
type cache struct {
	windowsDir   string // "": nothing is cached
	catalogueDir string
	limit        int64
	log          *slog.Logger
	next         atomic.Uint64 // of temporary names
	complained   atomic.Bool

	mu     sync.Mutex // guards the rest
	recent *list.List // of *cached, the one used last in front
	byKey  map[windowKey]*list.Element
	bytes  int64
}

type cached struct {
	key   windowKey
	bytes int64
}

// open takes in what the folder has, and evicts what is over the budget.
func (c *cache) open(dir string, limit int64, log *slog.Logger) error {
	c.limit, c.log, c.recent, c.byKey = limit, log, list.New(), map[windowKey]*list.Element{}
	if dir == "" {
		return nil
	}
	c.windowsDir, c.catalogueDir = filepath.Join(dir, "windows"), filepath.Join(dir, "catalog")
	for _, d := range []string{c.windowsDir, c.catalogueDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	type found struct {
		cached
		written time.Time
	}
	var windows []found
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(path, tmpSuffix) {
			return os.Remove(path)
		}
		key, ok := c.keyOf(path)
		if !ok {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		windows = append(windows, found{cached{key, info.Size()}, info.ModTime()})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(windows, func(a, b found) int { return a.written.Compare(b.written) })
	for _, w := range windows {
		c.insert(w.cached)
	}
	return nil
}

func (c *cache) path(k windowKey) string {
	return filepath.Join(c.windowsDir, k.object.String(), strconv.FormatUint(uint64(k.n), 10))
}

// keyOf is path's inverse.
func (c *cache) keyOf(path string) (windowKey, bool) {
	dir, name := filepath.Split(path)
	hash, err := cas.ParseHash(filepath.Base(dir))
	if err != nil || filepath.Dir(filepath.Clean(dir)) != c.windowsDir {
		return windowKey{}, false
	}
	n, err := strconv.ParseUint(name, 10, 32)
	key := windowKey{hash, uint32(n)}
	return key, err == nil && c.path(key) == path
}

// openWindow gives the file of a window that is cached, or nil.
func (c *cache) openWindow(k windowKey) *os.File {
	c.mu.Lock()
	e := c.byKey[k]
	if e != nil {
		c.recent.MoveToFront(e)
	}
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	f, err := os.Open(c.path(k))
	if err != nil {
		c.drop(k)
		return nil
	}
	return f
}

// storeWindow keeps a window, and evicts others for it.
func (c *cache) storeWindow(k windowKey, data []byte) {
	if c.windowsDir == "" || int64(len(data)) > c.limit {
		return
	}
	if c.write(c.path(k), data) {
		c.insert(cached{k, int64(len(data))})
	}
}

// insert makes room and adds w, whose file is there.
func (c *cache) insert(w cached) {
	c.mu.Lock()
	if e := c.byKey[w.key]; e != nil {
		c.bytes -= c.recent.Remove(e).(*cached).bytes
	}
	c.byKey[w.key] = c.recent.PushFront(&w)
	c.bytes += w.bytes
	var evicted []windowKey
	for c.bytes > c.limit && c.recent.Len() > 0 {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.byKey, oldest.key)
		c.bytes -= oldest.bytes
		evicted = append(evicted, oldest.key)
	}
	c.mu.Unlock()
	for _, k := range evicted {
		c.removeFile(k)
	}
}

// drop removes a window that is bad.
func (c *cache) drop(k windowKey) {
	c.mu.Lock()
	e := c.byKey[k]
	if e != nil {
		c.bytes -= c.recent.Remove(e).(*cached).bytes
		delete(c.byKey, k)
	}
	c.mu.Unlock()
	if e != nil {
		c.removeFile(k)
	}
}

// dropObject removes all windows of a pack that is gone.
func (c *cache) dropObject(o *object) {
	for n := int64(0); c.windowsDir != "" && n*WindowBytes < o.bytes; n++ {
		c.drop(windowKey{o.hash, uint32(n)})
	}
}

// removeFile removes a window's file, and its folder with the last one. A file that stays, because somebody reads it and
// this system holds on to open files, is found at the next Open.
func (c *cache) removeFile(k windowKey) {
	path := c.path(k)
	if err := os.Remove(path); err == nil {
		os.Remove(filepath.Dir(path)) // refused as long as there are others
	}
}

func (c *cache) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// write writes a file whole or not at all: to another name first. Nothing is synced, for nothing is trusted.
func (c *cache) write(path string, data []byte) bool {
	tmp := filepath.Join(c.catalogueDir, strconv.FormatUint(c.next.Add(1), 10)+tmpSuffix)
	err := os.WriteFile(tmp, data, 0o600)
	if err == nil {
		if err = os.Rename(tmp, path); errors.Is(err, fs.ErrNotExist) { // the first of its folder
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				err = os.Rename(tmp, path)
			}
		}
	}
	if err != nil {
		os.Remove(tmp)
		if !c.complained.Swap(true) {
			c.log.Warn("what is fetched can't be cached, and is fetched again when it is needed again", "err", err)
		}
		return false
	}
	c.complained.Store(false)
	return true
}

// catalogueName is the file a catalogue's key has, or "" when that isn't safe.
func catalogueName(key string) string {
	name := strings.TrimPrefix(key, cataloguePrefix)
	for _, b := range []byte(name) {
		if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b == '=' || b == '.') {
			return ""
		}
	}
	if strings.Trim(name, ".") == "" || strings.HasSuffix(name, tmpSuffix) {
		return ""
	}
	return name
}

// catalogue gives a catalogue that is cached, or nil.
func (c *cache) catalogue(key string) []byte {
	name := catalogueName(key)
	if c.catalogueDir == "" || name == "" {
		return nil
	}
	path := filepath.Join(c.catalogueDir, name)
	if info, err := os.Stat(path); err != nil || info.Size() > maxCatalogueBytes {
		return nil
	}
	p, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return p
}

func (c *cache) storeCatalogue(key string, p []byte) {
	if name := catalogueName(key); c.catalogueDir != "" && name != "" {
		c.write(filepath.Join(c.catalogueDir, name), p)
	}
}

// catalogues yields the cached catalogues, by key.
func (c *cache) catalogues() func(yield func(key string, p []byte) bool) {
	return func(yield func(key string, p []byte) bool) {
		for _, name := range c.catalogueNames() {
			if p := c.catalogue(cataloguePrefix + name); p != nil && !yield(cataloguePrefix+name, p) {
				return
			}
		}
	}
}

func (c *cache) catalogueNames() []string {
	if c.catalogueDir == "" {
		return nil
	}
	entries, err := os.ReadDir(c.catalogueDir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if catalogueName(cataloguePrefix+e.Name()) == e.Name() {
			names = append(names, e.Name())
		}
	}
	return names
}

// keepCatalogues removes the cached catalogues that the bucket doesn't list any more.
func (c *cache) keepCatalogues(listed map[string]bool) {
	for _, name := range c.catalogueNames() {
		if !listed[cataloguePrefix+name] {
			os.Remove(filepath.Join(c.catalogueDir, name))
		}
	}
}
