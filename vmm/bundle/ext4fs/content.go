package ext4fs

import "bytes"

const (
	maxComparedBlocks = 1 << 15 // 128 MiB of content a comparison
	compareTogether   = 64
)

// same tells whether two inodes look the same to a user of the file.
func (c *comparison) same(a, b *inode) (bool, error) {
	if a.mode != b.mode || a.uid != b.uid || a.gid != b.gid {
		return false, nil
	}
	switch a.kind() {
	case typeDir:
		return true, nil // what it holds is compared name by name
	case typeChar, typeBlock:
		return bytes.Equal(a.block[:8], b.block[:8]), nil // the device number, in either of its two forms
	case typeRegular, typeLink:
	default:
		return true, nil
	}
	if a.size != b.size || a.hasBlocks() != b.hasBlocks() {
		return false, nil
	}
	if !a.hasBlocks() {
		n := min(a.size, inlineBytes)
		return bytes.Equal(a.block[:n], b.block[:n]), nil
	}
	if a.flags&b.flags&flagExtents == 0 {
		if a.block == b.block {
			return true, nil // its times have changed; where its blocks lie isn't known
		}
		c.result.Guessed++
		return false, nil
	}
	fa, err := c.before.layout(a)
	if err != nil {
		return false, err
	}
	fb, err := c.after.layout(b)
	if err != nil {
		return false, err
	}
	return c.sameContent(fa.extents, fb.extents, a.size)
}

// sameContent compares two files of one size. Blocks that are the same one and unchanged aren't read.
func (c *comparison) sameContent(as, bs []extent, bytes uint64) (bool, error) {
	blocks := bytes / blockBytes
	if bytes%blockBytes != 0 {
		blocks++
	}
	var some pending
	for at := uint64(0); at < blocks; {
		a, endA := where(&as, at)
		b, endB := where(&bs, at)
		end := min(endA, endB, blocks)
		switch {
		case a == 0 && b == 0:
		case a == b:
			for _, n := range c.changed.within(a, end-at) {
				if same, err := c.compareSoon(&some, two{n, n, at + n - a}, bytes); !same || err != nil {
					return false, err
				}
			}
		default:
			for i := range end - at {
				t := two{logical: at + i}
				if a != 0 {
					t.before = a + i
				}
				if b != 0 {
					t.after = b + i
				}
				if same, err := c.compareSoon(&some, t, bytes); !same || err != nil {
					return false, err
				}
			}
		}
		at = end
	}
	return c.compareNow(&some, bytes)
}

// where gives the block at a place in a file, 0 in a hole, and where that run or hole ends. Extents before are dropped.
func where(list *[]extent, at uint64) (physical, end uint64) {
	for len(*list) > 0 && (*list)[0].end() <= at {
		*list = (*list)[1:]
	}
	if len(*list) == 0 {
		return 0, ^uint64(0)
	}
	e := (*list)[0]
	if e.logical > at {
		return 0, e.logical
	}
	return e.physical + at - e.logical, e.end()
}

// two are blocks at the same place of a file; 0 reads as zeros.
type two struct{ before, after, logical uint64 }

type pending []two

func (c *comparison) compareSoon(p *pending, t two, bytes uint64) (bool, error) {
	*p = append(*p, t)
	// The first alone: most files that differ do so early.
	if len(*p) < compareTogether && t.logical != 0 {
		return true, nil
	}
	return c.compareNow(p, bytes)
}

func (c *comparison) compareNow(p *pending, size uint64) (bool, error) {
	list := *p
	*p = list[:0]
	if len(list) == 0 {
		return true, nil
	}
	if c.compared += len(list); c.compared > maxComparedBlocks {
		c.result.Guessed++
		return false, nil
	}
	var before, after []uint64
	for _, t := range list {
		if t.before != 0 {
			before = append(before, t.before)
		}
		if t.after != 0 {
			after = append(after, t.after)
		}
	}
	if err := c.before.load(before); err != nil {
		return false, err
	}
	if err := c.after.load(after); err != nil {
		return false, err
	}
	for _, t := range list {
		a, err := c.before.content(t.before)
		if err != nil {
			return false, err
		}
		b, err := c.after.content(t.after)
		if err != nil {
			return false, err
		}
		n := min(size-t.logical*blockBytes, blockBytes)
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
	}
	return true, nil
}

func (s *side) content(block uint64) ([]byte, error) {
	if block == 0 {
		return zeroBlock, nil
	}
	return s.block(block)
}
