package qemu

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/blockdelta"
	"flash/vmm"
)

const testDiskBlocks = 4096 // 16 MiB

func overlay(t testing.TB, base blockdelta.Base) *blockdelta.Overlay {
	t.Helper()
	o, err := blockdelta.New(base, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// flaky is a disk's base that fails on demand.
type flaky struct {
	image
	broken atomic.Bool
	failed atomic.Int64
}

func (f *flaky) check() error {
	if f.broken.Load() {
		f.failed.Add(1)
		return errors.New("the store is away")
	}
	return nil
}

func (f *flaky) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.image.ReadSlot(ctx, slot, dst)
}

func (f *flaky) ReadSlots(ctx context.Context, slots []uint64, each func(uint64, []byte) error) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.image.ReadSlots(ctx, slots, each)
}

func TestDiskAndMemoryAreOneInstant(t *testing.T) {
	e := testEngine(t, Config{PoolSize: 1})
	spec := testSpec(t)
	s := emptySnapshot(spec)
	s.disk = make(image, testDiskBlocks)
	first := overlay(t, s.disk)
	root := shortDir(t)
	g := boot(t, e, spec, vmm.Attach{Dir: filepath.Join(root, "a"), Disks: []vmm.Disk{{Name: "root", Overlay: first}}})
	g.wants("write one", "count 2 one")
	s = g.checkpoint(s, first)
	g.wants("write two", "count 3 two")
	g.wants("read", "count 4 two")
	later := g.checkpoint(s, first)

	// Restored from a waiting process, several times over, each from where the one before was left.
	waitPool(t, e, 1)
	base := &flaky{image: s.disk}
	disk := overlay(t, base)
	r := restore(t, e, s, vmm.Attach{Dir: filepath.Join(root, "b"), Disks: []vmm.Disk{{Name: "root", Overlay: disk}}})
	r.resume()
	r.wants("read", "count 3 one")
	r.wants("write three", "count 4 three")
	s = r.checkpoint(s, disk)
	r.Close()

	again := restore(t, e, s, vmm.Attach{Dir: filepath.Join(root, "b"), Disks: []vmm.Disk{{Name: "root", Overlay: overlay(t, s.disk)}}})
	again.resume()
	again.wants("read", "count 5 three")
	other := restore(t, e, later, vmm.Attach{Dir: filepath.Join(root, "c"), Disks: []vmm.Disk{{Name: "root", Overlay: overlay(t, later.disk)}}})
	other.resume()
	other.wants("read", "count 5 two")
	for _, m := range []*guest{g, again, other} {
		m.Close()
	}
	if left := files(t, root); left != nil {
		t.Errorf("left %v", left)
	}

	t.Run("TransientDiskErrorStallsTheGuest", func(t *testing.T) {
		base := &flaky{image: s.disk}
		disk := overlay(t, base)
		g := restore(t, e, s, vmm.Attach{Dir: filepath.Join(shortDir(t), "d"), Disks: []vmm.Disk{{Name: "root", Overlay: disk}}})
		base.broken.Store(true)
		g.resume()
		answer := make(chan string, 1)
		go func() { answer <- g.ask(30*time.Second, "read") }()
		for deadline := time.Now().Add(20 * time.Second); base.failed.Load() < 3; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the request was tried %d times", base.failed.Load())
			}
		}
		middle := g.checkpoint(s, disk) // the request is in it
		base.broken.Store(false)
		if got := <-answer; got != "count 5 three" {
			t.Errorf("the guest read %q", got)
		}
		again := restore(t, e, middle, vmm.Attach{Dir: filepath.Join(shortDir(t), "d"), Disks: []vmm.Disk{{Name: "root", Overlay: overlay(t, s.disk)}}})
		again.resume()
		if line, err := again.lines.ReadString('\n'); err != nil || line != "count 5 three\n" {
			t.Errorf("the guest restored while its request failed read %q, %v", line, err)
		}
	})
	t.Run("LongSocketPathIsRefused", func(t *testing.T) {
		dir := filepath.Join(shortDir(t), strings.Repeat("x", 100))
		_, err := e.Restore(t.Context(), s.spec, vmm.Attach{Dir: dir, Memory: s.memory, Disks: []vmm.Disk{{Name: "root", Overlay: overlay(t, s.disk)}}}, s.state)
		if err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Error(err)
		}
	})
}
