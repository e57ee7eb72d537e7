package qemu

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
)

// image is a memory or a disk at one instant; nil is a zero page. Its pages are never changed.
type image []*[memtrack.PageBytes]byte

func (im image) Slots() uint64 { return uint64(len(im)) }

func (im image) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	clear(dst[:memtrack.PageBytes])
	if im[slot] != nil {
		copy(dst, im[slot][:])
	}
	return nil
}

func (im image) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, slot := range slots {
		var data []byte
		if im[slot] != nil {
			data = append(data, im[slot][:]...)
		}
		if err := each(slot, data); err != nil {
			return err
		}
	}
	return nil
}

func (im image) IsZero(_ context.Context, slot uint64) (bool, error) { return im[slot] == nil, nil }

// changes is what a memory's and a disk's delta have in common.
type changes interface {
	ReadSlot(ctx context.Context, slot uint64, dst []byte) error
}

// with gives a copy in which the slots are as in the delta.
func (im image) with(t testing.TB, slots []uint64, d changes) image {
	t.Helper()
	next := append(image(nil), im...)
	for _, slot := range slots {
		page := new([memtrack.PageBytes]byte)
		if err := d.ReadSlot(t.Context(), slot, page[:]); err != nil {
			t.Fatal(err)
		}
		if next[slot] = page; *page == ([memtrack.PageBytes]byte{}) {
			next[slot] = nil
		}
	}
	return next
}

func collect(seq func(func(uint64) bool)) (slots []uint64) {
	seq(func(slot uint64) bool { slots = append(slots, slot); return true })
	return slots
}

// snapshot is a machine at one instant.
type snapshot struct {
	memory, disk image
	state        vmm.State
	spec         vmm.Spec
	times        pauseTimes
	pages        int
}

// pauseTimes are the parts of a pause.
type pauseTimes struct{ stop, cut, state, resume time.Duration }

// checkpoint takes the machine and lets it go on. before is what its memory and disk were at the last checkpoint.
func (g *guest) checkpoint(before snapshot, disk *blockdelta.Overlay) snapshot {
	g.t.Helper()
	ctx := g.t.Context()
	var marks [5]time.Time
	mark := func(i int, err error) {
		g.t.Helper()
		if err != nil {
			g.t.Fatalf("step %d of the checkpoint: %v", i, err)
		}
		marks[i] = time.Now()
	}
	mark(0, nil)
	mark(1, g.Pause(ctx))
	memory, err := g.Tracker().Cut(ctx)
	mark(2, err)
	var blocks *blockdelta.Delta
	if disk != nil {
		if blocks, err = disk.Cut(ctx); err != nil {
			g.t.Fatal(err)
		}
	}
	state, err := g.SaveState(ctx)
	mark(3, err)
	mark(4, g.Resume(ctx))
	next := snapshot{spec: before.spec, state: state, disk: before.disk, pages: memory.Len()}
	next.memory = before.memory.with(g.t, collect(memory.Slots()), memory)
	memory.Commit()
	if blocks != nil {
		next.disk = before.disk.with(g.t, collect(blocks.Slots()), blocks)
		blocks.Commit(next.disk)
	}
	next.times = pauseTimes{marks[1].Sub(marks[0]), marks[2].Sub(marks[1]), marks[3].Sub(marks[2]), marks[4].Sub(marks[3])}
	return next
}

func emptySnapshot(s vmm.Spec) snapshot {
	return snapshot{spec: s, memory: make(image, s.MemBytes/memtrack.PageBytes)}
}

// booted is the machine that most tests restore: it has answered once.
func booted(t testing.TB) snapshot {
	t.Helper()
	bootOnce.Do(func() {
		e := testEngine(t, Config{PoolSize: -1})
		spec := testSpec(t)
		g := boot(t, e, spec, vmm.Attach{})
		defer g.Close()
		bootedSnapshot = g.checkpoint(emptySnapshot(spec), nil)
	})
	if bootedSnapshot.memory == nil {
		needVM(t, "the machine to restore from didn't boot; see the first test that wanted it")
	}
	return bootedSnapshot
}

var (
	bootOnce       sync.Once
	bootedSnapshot snapshot
)

// restore gives a paused guest.
func restore(t testing.TB, e *Engine, s snapshot, a vmm.Attach) *guest {
	t.Helper()
	if a.Dir == "" {
		a.Dir = filepath.Join(shortDir(t), "m")
	}
	if a.Memory == nil {
		a.Memory = s.memory
	}
	m, err := e.Restore(testContext(t), s.spec, a, s.state)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{Machine: m, t: t, lines: bufio.NewReader(m.Channel())}
	t.Cleanup(func() { g.Close() })
	return g
}

func (g *guest) resume() {
	g.t.Helper()
	if err := g.Resume(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// wants asks and compares the answer. A guest may be slow: its emulator may be emulated.
func (g *guest) wants(line, answer string) {
	g.t.Helper()
	if got := g.ask(vmm.BootDeadline, line); got != answer {
		g.t.Fatalf("%q is answered %q, not %q", line, got, answer)
	}
}

func count(n int) string { return fmt.Sprintf("count %d", n) }
