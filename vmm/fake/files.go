package fake

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"flash/blockdelta"
)

// files is the guest's file system, wholly on its disk: nothing of it is remembered between two calls, so a disk of
// another instant shows at once.
//
//	block 0   0  8  "FAKEFS\x00\x01"
//	          8  8  first block of the index, little-endian as all
//	         16  8  bytes of the index
//	         24  4  CRC-32C of the index
//	index     JSON: path → node. It lies in neighbouring blocks.
//
// A change writes data and a new index to free blocks and then block 0, so it happens or doesn't.
// Precondition of all methods: the CPU token is held.
type files struct {
	disk *blockdelta.Overlay
	ctx  context.Context // ends with the machine
}

// node is a file, a folder or a link.
type node struct {
	Mode  fs.FileMode `json:"mode"` // with fs.ModeDir, fs.ModeSymlink
	UID   int         `json:"uid,omitempty"`
	GID   int         `json:"gid,omitempty"`
	Time  time.Time   `json:"time"`
	Bytes uint64      `json:"bytes,omitempty"`
	First uint64      `json:"first,omitempty"` // its blocks are neighbours
	Link  string      `json:"link,omitempty"`
}

func (n node) blocks() uint64 { return blocksOf(n.Bytes) }

func blocksOf(bytes uint64) uint64 {
	return (bytes + blockdelta.BlockBytes - 1) / blockdelta.BlockBytes
}

const (
	filesMagic   = "FAKEFS\x00\x01"
	maxFileBytes = 64 << 20
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// index is the whole tree by absolute path, with where it lies itself.
type index struct {
	nodes        map[string]node
	first, bytes uint64
	leaving      []node // not in nodes any more; their blocks are free once the change is committed
}

func (f *files) blocks() uint64 { return f.disk.Bytes() / blockdelta.BlockBytes }

// format makes an empty file system unless there is one.
func (f *files) format(now time.Time) error {
	super := make([]byte, blockdelta.BlockBytes)
	if err := f.disk.ReadAt(f.ctx, super, 0); err != nil {
		return err
	}
	if string(super[:8]) == filesMagic {
		return nil
	}
	ix := index{nodes: map[string]node{}}
	for _, dir := range []string{"/", "/etc", "/root", "/run", "/tmp", "/work"} {
		ix.nodes[dir] = node{Mode: fs.ModeDir | 0o755, Time: now}
	}
	return f.commit(ix)
}

// read reads the index.
func (f *files) read() (index, error) {
	if f.disk == nil {
		return index{}, fmt.Errorf("the machine has no disk")
	}
	super := make([]byte, blockdelta.BlockBytes)
	if err := f.disk.ReadAt(f.ctx, super, 0); err != nil {
		return index{}, err
	}
	first, bytes := binary.LittleEndian.Uint64(super[8:]), binary.LittleEndian.Uint64(super[16:])
	if string(super[:8]) != filesMagic || first > f.blocks() || blocksOf(bytes) > f.blocks()-first {
		return index{}, fmt.Errorf("the disk's first block begins with %q: it isn't a fake guest's", super[:8])
	}
	p := make([]byte, bytes)
	if err := f.disk.ReadAt(f.ctx, p, int64(first*blockdelta.BlockBytes)); err != nil {
		return index{}, err
	}
	if crc32.Checksum(p, crcTable) != binary.LittleEndian.Uint32(super[24:]) {
		return index{}, fmt.Errorf("the file system's index at block %d is damaged", first)
	}
	ix := index{first: first, bytes: bytes}
	if err := json.Unmarshal(p, &ix.nodes); err != nil {
		return index{}, fmt.Errorf("the file system's index: %w", err)
	}
	return ix, nil
}

// room finds neighbouring blocks that neither the index nor a file has.
func (f *files) room(ix index, count uint64) (uint64, error) {
	type run struct{ first, end uint64 }
	taken := []run{{0, 1}, {ix.first, ix.first + blocksOf(ix.bytes)}, {f.blocks(), f.blocks()}}
	for _, n := range ix.nodes {
		taken = append(taken, run{n.First, n.First + n.blocks()})
	}
	for _, n := range ix.leaving {
		taken = append(taken, run{n.First, n.First + n.blocks()})
	}
	slices.SortFunc(taken, func(a, b run) int { return int(int64(a.first) - int64(b.first)) })
	at := uint64(1)
	for _, r := range taken {
		if r.first >= at && r.first-at >= count {
			return at, nil
		}
		at = max(at, r.end)
	}
	return 0, fmt.Errorf("no space left on device")
}

// commit writes a changed index and makes it the file system.
func (f *files) commit(ix index) error {
	p, err := json.Marshal(ix.nodes)
	if err != nil {
		return err
	}
	first, err := f.room(ix, blocksOf(uint64(len(p))))
	if err != nil {
		return err
	}
	padded := make([]byte, blocksOf(uint64(len(p)))*blockdelta.BlockBytes)
	copy(padded, p)
	if err := f.disk.WriteAt(f.ctx, padded, int64(first*blockdelta.BlockBytes)); err != nil {
		return err
	}
	super := make([]byte, blockdelta.BlockBytes)
	copy(super, filesMagic)
	binary.LittleEndian.PutUint64(super[8:], first)
	binary.LittleEndian.PutUint64(super[16:], uint64(len(p)))
	binary.LittleEndian.PutUint32(super[24:], crc32.Checksum(p, crcTable))
	if err := f.disk.WriteAt(f.ctx, super, 0); err != nil {
		return err
	}
	for _, n := range ix.leaving { // as a guest with online discard does
		if err := f.disk.Zero(f.ctx, int64(n.First*blockdelta.BlockBytes), int64(n.blocks()*blockdelta.BlockBytes)); err != nil {
			return err
		}
	}
	return nil
}

// parent checks that a path's folder is there.
func (ix index) parent(name string) error {
	if dir, ok := ix.nodes[path.Dir(name)]; !ok || !dir.Mode.IsDir() {
		return fmt.Errorf("%s: no such file or directory", path.Dir(name))
	}
	return nil
}

// writeFile creates or replaces a file. A mode of 0 keeps the old file's, or is 0644.
func (f *files) writeFile(name string, data []byte, meta node) error {
	ix, err := f.read()
	if err != nil {
		return err
	}
	old, there := ix.nodes[name]
	if there && old.Mode.IsDir() {
		return fmt.Errorf("%s: is a directory", name)
	}
	if err := ix.parent(name); err != nil {
		return err
	}
	if len(data) > maxFileBytes {
		return fmt.Errorf("%s: file too large", name)
	}
	if meta.Mode == 0 {
		meta.Mode = 0o644
		if there {
			meta.Mode = old.Mode
		}
	}
	meta.Bytes = uint64(len(data))
	if there {
		ix.leaving = append(ix.leaving, old)
	}
	if len(data) > 0 {
		if meta.First, err = f.room(ix, blocksOf(meta.Bytes)); err != nil {
			return err
		}
		if err := f.disk.WriteAt(f.ctx, data, int64(meta.First*blockdelta.BlockBytes)); err != nil {
			return err
		}
	}
	ix.nodes[name] = meta
	return f.commit(ix)
}

func (f *files) readFile(name string) ([]byte, error) {
	ix, err := f.read()
	if err != nil {
		return nil, err
	}
	n, ok := ix.nodes[name]
	if !ok {
		return nil, fmt.Errorf("%s: no such file or directory", name)
	}
	if n.Mode.IsDir() {
		return nil, fmt.Errorf("%s: is a directory", name)
	}
	p := make([]byte, n.Bytes)
	if n.Bytes == 0 {
		return p, nil
	}
	return p, f.disk.ReadAt(f.ctx, p, int64(n.First*blockdelta.BlockBytes))
}

// makeNode makes a folder or a link, and with parents all that is missing above it.
func (f *files) makeNode(name string, n node, parents bool) error {
	ix, err := f.read()
	if err != nil {
		return err
	}
	for dir := path.Dir(name); parents && dir != "/"; dir = path.Dir(dir) {
		if _, ok := ix.nodes[dir]; !ok {
			ix.nodes[dir] = node{Mode: fs.ModeDir | 0o755, Time: n.Time}
		}
	}
	if err := ix.parent(name); err != nil {
		return err
	}
	old, there := ix.nodes[name]
	switch {
	case !there:
	case old.Mode.IsDir() && n.Mode.IsDir() && parents:
	default:
		return fmt.Errorf("%s: file exists", name)
	}
	ix.nodes[name] = n
	return f.commit(ix)
}

// remove removes a file, or with all a folder and what is below it.
func (f *files) remove(name string, all bool) error {
	ix, err := f.read()
	if err != nil {
		return err
	}
	n, ok := ix.nodes[name]
	switch {
	case !ok:
		return fmt.Errorf("%s: no such file or directory", name)
	case name == "/" || n.Mode.IsDir() && !all:
		return fmt.Errorf("%s: is a directory", name)
	}
	for _, p := range below(ix, name) {
		ix.leaving = append(ix.leaving, ix.nodes[p])
		delete(ix.nodes, p)
	}
	return f.commit(ix)
}

// below gives name and all paths under it, parents first.
func below(ix index, name string) []string {
	prefix := strings.TrimSuffix(name, "/") + "/"
	var paths []string
	for _, p := range slices.Sorted(maps.Keys(ix.nodes)) {
		if p == name || strings.HasPrefix(p, prefix) {
			paths = append(paths, p)
		}
	}
	return paths
}
