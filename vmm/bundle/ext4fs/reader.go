package ext4fs

import (
	"context"
	"fmt"
	"slices"
)

// Disk is a disk as it is read: slots of 4096 bytes. A store.Image is one.
type Disk interface {
	Bytes() uint64

	// ReadSlots calls each once for every slot, in any order; data is nil for zeros and reused after each returns.
	ReadSlots(ctx context.Context, slots []uint64, each func(slot uint64, data []byte) error) error
}

const (
	cacheBlocks   = 1 << 14 // 64 MiB a side
	loadBlocks    = 1 << 10 // brought at once
	maxBlocksRead = 1 << 19 // 2 GiB of both disks
	maxBlockUses  = 1 << 22 // a hostile disk leads to the same block again and again
	maxPieces     = 1 << 24 // extents of all files looked at
)

var zeroBlock = make([]byte, blockBytes)

// meter bounds the work of one comparison, whatever is on the disks.
type meter struct{ reads, uses, pieces int }

func (m *meter) read(n int) error {
	if m.reads += n; m.reads > maxBlocksRead {
		return fmt.Errorf("%w: more than %d blocks would have to be read", ErrTooLarge, maxBlocksRead)
	}
	return nil
}

func (m *meter) use(n int) error {
	if m.uses += n; m.uses > maxBlockUses {
		return fmt.Errorf("%w: more than %d blocks would have to be looked at", ErrTooLarge, maxBlockUses)
	}
	return nil
}

func (m *meter) piece() error {
	if m.pieces++; m.pieces > maxPieces {
		return fmt.Errorf("%w: its files are in more than %d pieces", ErrTooLarge, maxPieces)
	}
	return nil
}

// reader reads the blocks of one disk. With replay set it reads through the journal.
type reader struct {
	ctx        context.Context // of the one comparison it is made for
	disk       Disk
	diskBlocks uint64
	meter      *meter
	replay     map[uint64]logged
	cache      map[uint64][]byte
	twin       *reader  // if set: holds the same in all blocks that aren't changed
	changed    blockSet // with twin
}

func newReader(ctx context.Context, disk Disk, m *meter) *reader {
	return &reader{ctx: ctx, disk: disk, diskBlocks: disk.Bytes() / blockBytes, meter: m, cache: map[uint64][]byte{}}
}

// through makes the reader read through the journal from now on.
func (r *reader) through(replay map[uint64]logged) {
	r.replay = replay
	clear(r.cache)
}

// like makes the reader take what isn't changed from its twin.
func (r *reader) like(twin *reader, changed blockSet) {
	r.twin, r.changed = twin, changed
}

func (r *reader) of(block uint64) *reader {
	if r.twin != nil && !r.changed.has(block) {
		return r.twin
	}
	return r
}

// block gives one block, which the caller doesn't write to.
func (r *reader) block(n uint64) ([]byte, error) {
	if err := r.meter.use(1); err != nil {
		return nil, err
	}
	r = r.of(n)
	if p, ok := r.cache[n]; ok {
		return p, nil
	}
	var found []byte
	err := r.read([]uint64{n}, func(_ uint64, p []byte) { found = p })
	return found, err
}

// load brings blocks that will be asked for, with few long reads. It's only about speed: they may be gone again.
func (r *reader) load(blocks []uint64) error {
	var mine, twins []uint64
	for _, n := range blocks {
		at := r.of(n)
		if _, ok := at.cache[n]; ok {
			continue
		}
		if at == r {
			mine = append(mine, n)
		} else {
			twins = append(twins, n)
		}
	}
	for at, list := range map[*reader][]uint64{r: mine, r.twin: twins} {
		slices.Sort(list)
		for some := range slices.Chunk(slices.Compact(list), loadBlocks) {
			if err := at.read(some, func(uint64, []byte) {}); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads different blocks, through the journal, into the cache.
func (r *reader) read(blocks []uint64, each func(block uint64, p []byte)) error {
	if err := r.meter.read(len(blocks)); err != nil {
		return err
	}
	if len(r.cache)+len(blocks) > cacheBlocks {
		clear(r.cache)
	}
	slots := make([]uint64, len(blocks))
	homes := make(map[uint64]uint64, len(blocks))
	for i, n := range blocks {
		slots[i] = n
		if l, ok := r.replay[n]; ok {
			slots[i] = l.at
		}
		if slots[i] >= r.diskBlocks {
			return fmt.Errorf("%w: block %d of a disk of %d", ErrCorrupt, slots[i], r.diskBlocks)
		}
		if _, ok := homes[slots[i]]; ok {
			return fmt.Errorf("%w: block %d is also a copy in the journal", ErrCorrupt, slots[i])
		}
		homes[slots[i]] = n
	}
	return r.disk.ReadSlots(r.ctx, slots, func(slot uint64, data []byte) error {
		p := zeroBlock
		if data != nil {
			p = slices.Clone(data)
		}
		if len(p) != blockBytes {
			return fmt.Errorf("%w: slot %d has %d bytes", ErrUnsupported, slot, len(p))
		}
		home := homes[slot]
		if l, ok := r.replay[home]; ok {
			var err error
			if p, err = l.open(home, p); err != nil {
				return err
			}
		}
		r.cache[home] = p
		each(home, p)
		return nil
	})
}
