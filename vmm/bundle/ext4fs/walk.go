package ext4fs

import (
	"fmt"
)

const walkTogether = 512 // directories read with one call

// The queue is bounded, since every directory can name a million more, and paths, since they are as long as trees are deep.
const (
	maxDirs      = 1 << 21
	maxPathBytes = 8192
)

// folder is a directory's path: the root's has neither parent nor name.
type folder struct {
	parent *folder
	name   string
	bytes  int
}

// path of a name in the folder; of the folder itself, with a slash at its end, for the name "".
func (f *folder) path(name string) string {
	p := make([]byte, f.bytes, f.bytes+len(name))
	for at := f.bytes; f != nil; f = f.parent {
		at--
		p[at] = '/'
		at -= copy(p[at-len(f.name):at], f.name)
	}
	return string(append(p, name...))
}

// pair is one directory's path and its inode on each side, 0 where it isn't.
type pair struct {
	*folder
	before, after uint32
}

// walk compares the trees, level by level, each level in parts.
func (c *comparison) walk() error {
	w := &walker{comparison: c, seenBefore: map[uint32]bool{}, seenAfter: map[uint32]bool{}}
	root := entry{"", rootInode, true}
	if err := w.both(nil, root, root); err != nil {
		return err
	}
	for len(w.queue) > 0 && !c.result.More {
		some := w.queue[:min(walkTogether, len(w.queue))]
		w.queue = w.queue[len(some):]
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := w.level(some); err != nil {
			return err
		}
	}
	return nil
}

type walker struct {
	*comparison
	queue                 []pair
	seenBefore, seenAfter map[uint32]bool
}

// dir is a directory of one side, ready to be read.
type dir struct {
	in   inode
	file *file
}

// level compares some directories.
func (w *walker) level(pairs []pair) error {
	before, after := make([]uint32, 0, len(pairs)), make([]uint32, 0, len(pairs))
	for _, p := range pairs {
		before, after = append(before, p.before), append(after, p.after)
	}
	as, err := w.before.dirs(before)
	if err != nil {
		return err
	}
	bs, err := w.after.dirs(after)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		if w.result.More {
			return nil
		}
		if err := w.dirs(p, as[i], bs[i]); err != nil {
			return fmt.Errorf("%s: %w", p.path(""), err)
		}
	}
	return nil
}

// dirs brings directories and their blocks; nil for inode 0.
func (s *side) dirs(numbers []uint32) ([]*dir, error) {
	var some []uint32
	for _, n := range numbers {
		if n != 0 {
			some = append(some, n)
		}
	}
	if err := s.loadInodes(some); err != nil {
		return nil, err
	}
	out := make([]*dir, len(numbers))
	var blocks []uint64
	for i, n := range numbers {
		if n == 0 {
			continue
		}
		in, err := s.inode(n)
		if err != nil {
			return nil, err
		}
		f, err := s.layout(&in)
		if err != nil {
			return nil, err
		}
		out[i] = &dir{in, f}
		if blocks = dirBlocks(blocks, &in, f); len(blocks) > loadBlocks {
			if err := s.load(blocks); err != nil {
				return nil, err
			}
			blocks = blocks[:0]
		}
	}
	return out, s.load(blocks)
}

// dirs compares what two directories hold; one of them may be nil.
func (w *walker) dirs(p pair, a, b *dir) error {
	var as, bs []entry
	var err error
	if b != nil {
		if bs, err = w.after.entries(&b.in, b.file); err != nil {
			return err
		}
	}
	if a != nil && b != nil && p.before == p.after && !w.touched[p.after] && !b.file.touched(w.changed) {
		for _, e := range bs {
			if !e.isDir && !w.touched[e.inode] {
				continue
			}
			if err := w.both(p.folder, e, e); err != nil {
				return err
			}
		}
		return nil
	}
	if a != nil {
		if as, err = w.before.entries(&a.in, a.file); err != nil {
			return err
		}
	}
	return w.merge(p.folder, as, bs)
}

// merge compares two sorted lists of names.
func (w *walker) merge(in *folder, as, bs []entry) error {
	if err := w.before.loadInodes(numbersOf(as)); err != nil {
		return err
	}
	if err := w.after.loadInodes(numbersOf(bs)); err != nil {
		return err
	}
	for len(as)+len(bs) > 0 && !w.result.More {
		var err error
		switch {
		case len(bs) == 0 || len(as) > 0 && as[0].name < bs[0].name:
			err = w.only(w.before, Removed, in, as[0])
			as = as[1:]
		case len(as) == 0 || bs[0].name < as[0].name:
			err = w.only(w.after, Added, in, bs[0])
			bs = bs[1:]
		default:
			err = w.both(in, as[0], bs[0])
			as, bs = as[1:], bs[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func numbersOf(list []entry) []uint32 {
	out := make([]uint32, len(list))
	for i, e := range list {
		out[i] = e.inode
	}
	return out
}

// only notes a name that is on one side, and queues what is below.
func (w *walker) only(s *side, kind Kind, parent *folder, e entry) error {
	in, err := s.inode(e.inode)
	if err != nil {
		return err
	}
	w.note(parent, e.name, kind, &in)
	switch {
	case !in.isDir():
		return nil
	case kind == Added:
		return w.enter(parent, e.name, 0, e.inode)
	default:
		return w.enter(parent, e.name, e.inode, 0)
	}
}

// both compares a name's files on both sides.
func (w *walker) both(parent *folder, a, b entry) error {
	if a.inode == b.inode && !w.touched[a.inode] {
		if !a.isDir {
			return nil
		}
		return w.enter(parent, a.name, a.inode, a.inode)
	}
	ia, err := w.before.inode(a.inode)
	if err != nil {
		return err
	}
	ib, err := w.after.inode(b.inode)
	if err != nil {
		return err
	}
	same, err := w.same(&ia, &ib)
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	if !same {
		w.note(parent, b.name, Modified, &ib)
	}
	if !ia.isDir() {
		a.inode = 0
	}
	if !ib.isDir() {
		b.inode = 0
	}
	if a.inode == 0 && b.inode == 0 {
		return nil
	}
	return w.enter(parent, a.name, a.inode, b.inode)
}

// enter queues a directory. Each is entered once a side: one with two parents would make a circle possible.
func (w *walker) enter(parent *folder, name string, before, after uint32) error {
	f := &folder{parent, name, len(name) + 1}
	if parent != nil {
		f.bytes += parent.bytes
	}
	switch {
	case f.bytes > maxPathBytes:
		return fmt.Errorf("%w: a path of %d bytes", ErrTooLarge, f.bytes)
	case before != 0 && w.seenBefore[before] || after != 0 && w.seenAfter[after]:
		return fmt.Errorf("%w: the directory %q has two parents", ErrCorrupt, name)
	case max(len(w.seenBefore), len(w.seenAfter)) >= maxDirs:
		return fmt.Errorf("%w: more than %d directories", ErrTooLarge, maxDirs)
	}
	if before != 0 {
		w.seenBefore[before] = true
	}
	if after != 0 {
		w.seenAfter[after] = true
	}
	w.queue = append(w.queue, pair{f, before, after})
	return nil
}

func (w *walker) note(parent *folder, name string, kind Kind, in *inode) {
	if len(w.result.Changes) >= w.limit {
		w.result.More = true
		return
	}
	path := "/" // the root
	if parent != nil {
		path = parent.path(name)
		if in.isDir() {
			path += "/"
		}
	}
	w.result.Changes = append(w.result.Changes, Change{path, kind, in.shown()})
}
