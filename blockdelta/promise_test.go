package blockdelta

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func patterned(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n) }

// settle waits until freed slots have been given back.
func settle(o *Overlay) {
	o.reclaims.Wait()
}

func TestManyBaseBlocksComeInOneCall(t *testing.T) {
	base := newMemBase(64, 1)
	o := open(t, base)
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 1), 9*BlockBytes))
	p := make([]byte, 60*BlockBytes+100)
	must(t, o.ReadAt(t.Context(), p, 50))
	if base.batches.Load() != 1 || base.single.Load() != 0 {
		t.Fatalf("%d batches and %d single reads, want 1 and 0", base.batches.Load(), base.single.Load())
	}
}

func TestBlockTheBaseForgetsIsAnError(t *testing.T) {
	base := newMemBase(8, 1)
	base.leaveOut = true
	if err := open(t, base).ReadAt(t.Context(), make([]byte, 4*BlockBytes), 0); err == nil {
		t.Fatal("a read succeeded although the base gave 3 of 4 blocks")
	}
}

func TestBaseErrorReachesTheReader(t *testing.T) {
	lost := errors.New("pack 7 is gone")
	base := newMemBase(8, 1)
	base.beforeRead = func(slot uint64) error {
		if slot == 3 {
			return lost
		}
		return nil
	}
	o := open(t, base)
	for name, err := range map[string]error{
		"many":  o.ReadAt(t.Context(), make([]byte, 6*BlockBytes), 0),
		"one":   o.ReadAt(t.Context(), make([]byte, BlockBytes), 3*BlockBytes),
		"patch": o.WriteAt(t.Context(), []byte{1}, 3*BlockBytes),
	} {
		if !errors.Is(err, lost) || !strings.Contains(err.Error(), "block") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 1), 3*BlockBytes)) // a whole block needs nothing from below
}

func TestSlowBaseDelaysNobodyElse(t *testing.T) {
	base := newMemBase(8, 1)
	entered, goOn := make(chan struct{}, 8), make(chan struct{})
	base.beforeRead = func(slot uint64) error {
		if slot == 0 {
			entered <- struct{}{}
			<-goOn
		}
		return nil
	}
	o := open(t, base)
	done := make(chan error, 2)
	go func() { done <- o.WriteAt(t.Context(), []byte{42}, 10) }()
	go func() { done <- o.ReadAt(t.Context(), make([]byte, 2*BlockBytes), 0) }()
	<-entered
	<-entered
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 7), 4*BlockBytes))
	must(t, o.WriteAt(t.Context(), patterned(10, 7), 5*BlockBytes+1))
	must(t, o.ReadAt(t.Context(), make([]byte, 4*BlockBytes), 4*BlockBytes))
	must(t, o.Zero(t.Context(), 6*BlockBytes, BlockBytes))
	close(goOn)
	must(t, <-done)
	must(t, <-done)
}

// Each case is something that happens to a block while a partial write of it reads the old bytes from the base.
func TestPartialWriteUndoesNothingThatFinishedMeanwhile(t *testing.T) {
	const at, n = 100, 10
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, o *Overlay)
		want      func(old []byte) []byte
	}{
		"another partial write": {
			func(t *testing.T, o *Overlay) { must(t, o.WriteAt(t.Context(), patterned(5, 9), 3000)) },
			func(old []byte) []byte { copy(old[3000:], patterned(5, 9)); return old },
		},
		"a whole write": {
			func(t *testing.T, o *Overlay) { must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 9), 0)) },
			func([]byte) []byte { return patterned(BlockBytes, 9) },
		},
		"zeroed": {
			func(t *testing.T, o *Overlay) { must(t, o.Zero(t.Context(), 0, BlockBytes)) },
			func([]byte) []byte { return make([]byte, BlockBytes) },
		},
		"written and zeroed": {
			func(t *testing.T, o *Overlay) {
				must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 9), 0))
				must(t, o.Zero(t.Context(), 0, BlockBytes))
			},
			func([]byte) []byte { return make([]byte, BlockBytes) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := newMemBase(4, 3)
			fill(base.block(0), seeded(t))
			entered, goOn := base.holdFirst()
			o := open(t, base)
			done := make(chan error)
			go func() { done <- o.WriteAt(t.Context(), patterned(n, 5), at) }()
			<-entered
			c.meanwhile(t, o)
			close(goOn)
			must(t, <-done)
			want := c.want(bytes.Clone(base.block(0)))
			copy(want[at:], patterned(n, 5))
			got := make([]byte, BlockBytes)
			must(t, o.ReadAt(t.Context(), got, 0))
			if !bytes.Equal(got, want) {
				t.Fatal("a write that had finished is gone")
			}
			settle(o)
			if used := o.ScratchBytes(); used != BlockBytes {
				t.Fatalf("%d bytes of scratch in use for one block", used)
			}
		})
	}
}

func TestCutWaitsForWritesInFlight(t *testing.T) {
	base := newMemBase(4, 3)
	entered, goOn := base.holdFirst()
	o := open(t, base)
	done := make(chan error)
	go func() { done <- o.WriteAt(t.Context(), []byte{1}, 0) }()
	<-entered
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Cut(hurried); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 writes") {
		t.Fatalf("a cut in the middle of a write: %v", err)
	}
	cut := make(chan *Delta)
	go func() {
		d, err := o.Cut(t.Context())
		if err != nil {
			t.Error(err)
		}
		cut <- d
	}()
	for { // until the cut is waiting: then a new write waits too
		o.mu.Lock()
		waiting := o.cutting != nil
		o.mu.Unlock()
		if waiting {
			break
		}
		time.Sleep(time.Millisecond)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.WriteAt(late, patterned(BlockBytes, 1), BlockBytes); !errors.Is(err, context.Canceled) {
		t.Fatalf("a write began although a cut waits: %v", err)
	}
	close(goOn)
	must(t, <-done)
	if d := <-cut; d.Len() != 1 {
		t.Fatalf("the cut has %d blocks, want the one that was in flight", d.Len())
	}
}

func TestZeroBlocksCostNoSpace(t *testing.T) {
	o := open(t, newMemBase(1000, 1))
	ctx := t.Context()
	must(t, o.WriteAt(ctx, make([]byte, 100*BlockBytes), 0))
	must(t, o.Zero(ctx, 100*BlockBytes, 800*BlockBytes))
	if o.ScratchBytes() != 0 {
		t.Fatalf("%d bytes of scratch for zeros", o.ScratchBytes())
	}
	must(t, o.WriteAt(ctx, patterned(100*BlockBytes, 1), 0))
	must(t, o.Zero(ctx, 0, 50*BlockBytes))
	must(t, o.WriteAt(ctx, make([]byte, 50*BlockBytes), 50*BlockBytes))
	settle(o)
	if o.ScratchBytes() != 0 || o.Pending() != 900 {
		t.Fatalf("%d bytes of scratch for %d zero blocks", o.ScratchBytes(), o.Pending())
	}
}

func TestDiscardingAHugeDiskIsCheap(t *testing.T) {
	const blocks = 1 << 28 // 1 TiB
	o := open(t, hugeBase{blocks})
	must(t, o.Zero(t.Context(), 0, blocks*BlockBytes))
	if o.Pending() != blocks || len(o.top.leaves) != blocks/leafBlocks {
		t.Fatalf("%d blocks pending in %d leaves", o.Pending(), len(o.top.leaves))
	}
	for _, lf := range o.top.leaves {
		if lf != zeroLeaf {
			t.Fatal("a leaf of zeros takes memory of its own")
		}
	}
	must(t, o.WriteAt(t.Context(), []byte{1}, 5*BlockBytes))
	if zeroLeaf[5] != zero {
		t.Fatal("the shared leaf was written")
	}
}

type hugeBase struct{ blocks uint64 }

func (b hugeBase) Slots() uint64                                { return b.blocks }
func (hugeBase) ReadSlot(context.Context, uint64, []byte) error { return errors.New("not read") }
func (hugeBase) ReadSlots(context.Context, []uint64, func(uint64, []byte) error) error {
	return errors.New("not read")
}

func TestCommitFreesScratchSpace(t *testing.T) {
	base := newMemBase(64, 1)
	o := open(t, base)
	for round := range 5 {
		must(t, o.WriteAt(t.Context(), patterned(64*BlockBytes, byte(round+1)), 0))
		d, err := o.Cut(t.Context())
		must(t, err)
		must(t, o.WriteAt(t.Context(), patterned(8*BlockBytes, 99), 0))
		base = base.merged(t, d)
		d.Commit(base)
		settle(o)
		if used := o.ScratchBytes(); used != 8*BlockBytes {
			t.Fatalf("round %d: %d bytes in use, want %d", round, used, 8*BlockBytes)
		}
	}
	if size := fileBytes(t, o); size > 2*64*BlockBytes+8*BlockBytes {
		t.Fatalf("the scratch file grew to %d bytes: freed slots are not used again", size)
	}
	must(t, o.Zero(t.Context(), 0, 64*BlockBytes))
	settle(o)
	if size := fileBytes(t, o); size != 0 {
		t.Fatalf("%d bytes of file are left with nothing in use", size)
	}
}

func fileBytes(t *testing.T, o *Overlay) int64 {
	t.Helper()
	info, err := o.scratch.file.(*os.File).Stat()
	must(t, err)
	return info.Size()
}

func TestSlotIsKeptWhileAReadMayKnowIt(t *testing.T) {
	base := newMemBase(4, 1)
	entered, goOn := base.holdFirst()
	o := open(t, base)
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 1), 0))
	done := make(chan error)
	go func() { done <- o.ReadAt(t.Context(), make([]byte, 4*BlockBytes), 0) }() // knows block 0's slot
	<-entered
	must(t, o.Zero(t.Context(), 0, BlockBytes))
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 2), BlockBytes))
	settle(o)
	if used := o.ScratchBytes(); used != 2*BlockBytes {
		t.Fatalf("%d bytes in use: the slot was given back under a reader", used)
	}
	close(goOn)
	must(t, <-done)
	settle(o)
	if used := o.ScratchBytes(); used != BlockBytes {
		t.Fatalf("%d bytes in use after the reader has gone", used)
	}
}

// fullFile refuses writes beyond its limit, as a full disk does.
type fullFile struct {
	backing
	limit int64
}

func (f *fullFile) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.limit {
		n := max(0, int(f.limit-off))
		_, _ = f.backing.WriteAt(p[:n], off)
		return n, &os.PathError{Op: "write", Path: "scratch", Err: syscall.ENOSPC}
	}
	return f.backing.WriteAt(p, off)
}

func TestFullScratchDiskLosesNothing(t *testing.T) {
	base := newMemBase(64, 1)
	o := open(t, base)
	full := &fullFile{o.scratch.file, 10 * BlockBytes}
	o.scratch.file = full
	ctx := t.Context()
	must(t, o.WriteAt(ctx, patterned(8*BlockBytes, 1), 0))
	if err := o.WriteAt(ctx, patterned(8*BlockBytes, 2), 4*BlockBytes); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a write to a full disk: %v", err)
	}
	if err := o.WriteAt(ctx, patterned(3, 2), 20*BlockBytes); err != nil {
		t.Fatalf("one block still fits: %v", err)
	}
	must(t, o.WriteAt(ctx, patterned(BlockBytes, 2), 21*BlockBytes))
	if err := o.WriteAt(ctx, patterned(3, 2), 22*BlockBytes); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a partial write to a full disk: %v", err)
	}
	must(t, o.WriteAt(ctx, patterned(4*BlockBytes, 3), 0)) // in place
	got, want := make([]byte, 64*BlockBytes), bytes.Clone(base.data)
	copy(want, patterned(4*BlockBytes, 3))
	copy(want[4*BlockBytes:], patterned(4*BlockBytes, 1))
	copy(want[20*BlockBytes:], patterned(3, 2))
	copy(want[21*BlockBytes:], patterned(BlockBytes, 2))
	must(t, o.ReadAt(ctx, got, 0))
	// Of the request that failed, its first four blocks lie in slots they already had and may hold either.
	copy(got[4*BlockBytes:8*BlockBytes], want[4*BlockBytes:8*BlockBytes])
	if !bytes.Equal(got, want) {
		t.Fatal("a full disk changed what was there")
	}
	full.limit = math.MaxInt64 // room again: the guest's retry succeeds
	must(t, o.WriteAt(ctx, patterned(8*BlockBytes, 2), 4*BlockBytes))
	settle(o)
	if used := o.ScratchBytes(); used != 14*BlockBytes {
		t.Fatalf("%d blocks in use, want 14: a failed write leaked its slots", used/BlockBytes)
	}
}

func TestRequestsOutsideTheDiskAreRefused(t *testing.T) {
	o := open(t, newMemBase(4, 1))
	for _, r := range []struct {
		off int64
		n   int
	}{{4 * BlockBytes, 1}, {-1, 1}, {4*BlockBytes - 1, 2}, {math.MaxInt64, 2}, {math.MinInt64, 0}} {
		p := make([]byte, r.n)
		for _, err := range []error{o.ReadAt(t.Context(), p, r.off), o.WriteAt(t.Context(), p, r.off), o.Zero(t.Context(), r.off, int64(r.n))} {
			if !errors.Is(err, ErrRange) {
				t.Errorf("%d+%d: %v", r.off, r.n, err)
			}
		}
	}
	if err := o.Zero(t.Context(), 0, -1); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
	must(t, o.ReadAt(t.Context(), nil, 4*BlockBytes))
	must(t, o.Zero(t.Context(), 4*BlockBytes, 0))
}

func TestDeltaEndsOnce(t *testing.T) {
	base := newMemBase(4, 1)
	o := open(t, base)
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 1), 0))
	d, err := o.Cut(t.Context())
	must(t, err)
	if _, err := o.Cut(t.Context()); !errors.Is(err, ErrOpen) {
		t.Fatalf("a second cut: %v", err)
	}
	d.Rollback()
	d.Commit(base) // must not make the block disappear
	d.Rollback()
	if o.Pending() != 1 {
		t.Fatalf("%d blocks pending after the rollback, want 1", o.Pending())
	}
	if err := d.ReadSlot(t.Context(), 0, make([]byte, BlockBytes)); !errors.Is(err, ErrEnded) {
		t.Fatalf("a read of an ended delta: %v", err)
	}
	d, err = o.Cut(t.Context())
	must(t, err)
	if err := d.ReadSlot(t.Context(), 1, make([]byte, BlockBytes)); err == nil {
		t.Fatal("an unchanged block was read as changed")
	}
	d.Commit(base.merged(t, d))
	d.Rollback()
	if o.Pending() != 0 {
		t.Fatal("a rollback after the commit brought blocks back")
	}
}

func TestClosedOverlayRefuses(t *testing.T) {
	dir := t.TempDir()
	o, err := New(newMemBase(4, 1), dir)
	must(t, err)
	must(t, o.WriteAt(t.Context(), patterned(BlockBytes, 1), 0))
	d, err := o.Cut(t.Context())
	must(t, err)
	must(t, o.Close())
	must(t, o.Close())
	_, cut := o.Cut(t.Context())
	d.Rollback()
	_, again := o.Cut(t.Context())
	p := make([]byte, BlockBytes)
	for i, err := range []error{o.ReadAt(t.Context(), p, 0), o.WriteAt(t.Context(), p, 0), d.ReadSlot(t.Context(), 0, p), again} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if cut == nil {
		t.Error("a closed overlay was cut")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}
