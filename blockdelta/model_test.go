package blockdelta

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the model tests; 0: a new one")

// seeded gives a generator and prints how to run the test again when it fails.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: go test ./blockdelta -run %s -seed %d", t.Name(), seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 2))
}

// model is what an overlay must be: plain bytes, and which blocks the next cut must report.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	o       *Overlay
	base    *memBase
	disk    []byte
	written map[uint64]bool // since the last cut

	delta    *Delta // nil: none open
	atCut    []byte // the disk when delta was cut
	reported map[uint64]bool
}

// extent picks a range: mostly short and unaligned, sometimes long, sometimes at the very end.
func (m *model) extent() (off, n int) {
	size := len(m.disk)
	switch m.rng.IntN(4) {
	case 0:
		n = m.rng.IntN(600)
	case 1:
		n = m.rng.IntN(6) * BlockBytes
	case 2:
		n = m.rng.IntN(5 * BlockBytes)
	default:
		n = m.rng.IntN(size / 2)
	}
	n = min(n, size)
	off = m.rng.IntN(size - n + 1)
	switch m.rng.IntN(4) {
	case 0:
		off = off / BlockBytes * BlockBytes
	case 1:
		off = size - n
	}
	return off, n
}

func (m *model) touch(off, n int) {
	for b := off / BlockBytes; n > 0 && b <= (off+n-1)/BlockBytes; b++ {
		m.written[uint64(b)] = true
	}
}

func (m *model) step() string {
	ctx := m.t.Context()
	switch op := m.rng.IntN(20); {
	case op < 7:
		off, n := m.extent()
		p := m.disk[off : off+n]
		if m.rng.IntN(5) == 0 {
			clear(p)
		} else {
			fill(p, m.rng)
		}
		m.touch(off, n)
		if err := m.o.WriteAt(ctx, p, int64(off)); err != nil {
			m.t.Fatal(err)
		}
		return fmt.Sprintf("write %d+%d", off, n)
	case op < 10:
		off, n := m.extent()
		clear(m.disk[off : off+n])
		m.touch(off, n)
		if err := m.o.Zero(ctx, int64(off), int64(n)); err != nil {
			m.t.Fatal(err)
		}
		return fmt.Sprintf("zero %d+%d", off, n)
	case op < 16:
		off, n := m.extent()
		m.read(off, n)
		return fmt.Sprintf("read %d+%d", off, n)
	case m.delta == nil:
		d, err := m.o.Cut(ctx)
		if err != nil {
			m.t.Fatal(err)
		}
		m.delta, m.atCut, m.reported = d, slices.Clone(m.disk), m.written
		m.written = map[uint64]bool{}
		m.checkDelta()
		return fmt.Sprintf("cut %d", d.Len())
	case op < 18:
		m.checkDelta()
		next := m.base.merged(m.t, m.delta)
		if !bytes.Equal(next.data, m.atCut) {
			m.t.Fatal("base and delta are not the disk at the cut")
		}
		m.delta.Commit(next)
		m.base, m.delta = next, nil
		return "commit"
	default:
		m.checkDelta()
		m.delta.Rollback()
		m.delta = nil
		for b := range m.reported {
			m.written[b] = true
		}
		return "rollback"
	}
}

func (m *model) read(off, n int) {
	p := make([]byte, n)
	fill(p, m.rng)
	if err := m.o.ReadAt(m.t.Context(), p, int64(off)); err != nil {
		m.t.Fatal(err)
	}
	if !bytes.Equal(p, m.disk[off:off+n]) {
		m.t.Fatalf("read %d bytes at %d differ from the oracle", n, off)
	}
}

// checkDelta compares slots and bytes: all that was written, nothing else, as at the cut.
func (m *model) checkDelta() {
	p := make([]byte, BlockBytes)
	count := 0
	for slot := range m.delta.Slots() {
		if !m.reported[slot] {
			m.t.Fatalf("the delta reports block %d, which was not written", slot)
		}
		count++
		if err := m.delta.ReadSlot(m.t.Context(), slot, p); err != nil {
			m.t.Fatal(err)
		}
		if !bytes.Equal(p, m.atCut[slot*BlockBytes:(slot+1)*BlockBytes]) {
			m.t.Fatalf("block %d of the delta differs from the disk at the cut", slot)
		}
	}
	if count != len(m.reported) || count != m.delta.Len() {
		m.t.Fatalf("the delta reports %d blocks, Len %d, written were %d", count, m.delta.Len(), len(m.reported))
	}
}

func TestOverlayIsAPlainDisk(t *testing.T) {
	rng := seeded(t)
	for round := range 6 {
		blocks := []int{1, 7, 40, leafBlocks + 3, 2*leafBlocks + 1, 3 * leafBlocks}[round]
		base := newMemBase(blocks, rng.Uint64())
		m := &model{t: t, rng: rng, o: open(t, base), base: base, disk: slices.Clone(base.data), written: map[uint64]bool{}}
		var log []string
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("last steps on %d blocks: %q", blocks, log[max(0, len(log)-12):])
			}
		})
		for range 300 {
			log = append(log, m.step())
			if len(m.written) != m.o.Pending() {
				t.Fatalf("after %s: %d blocks pending, written were %d", log[len(log)-1], m.o.Pending(), len(m.written))
			}
		}
		m.read(0, len(m.disk))
	}
}
