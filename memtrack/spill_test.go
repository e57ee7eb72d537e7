package memtrack_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"errors"

	"flash/memtrack"
)

// numbered is memory that takes no room: each page holds its number, every tenth is zero.
type numbered struct {
	pages   uint64
	scratch string
}

func (m numbered) Pages() uint64   { return m.pages }
func (m numbered) Scratch() string { return m.scratch }

func (m numbered) View(_ context.Context, pages []uint64, dst []byte) error {
	for i, p := range pages {
		m.fill(p, dst[i*page:][:page])
	}
	return nil
}

func (m numbered) fill(p uint64, dst []byte) {
	clear(dst)
	if p%10 != 0 {
		binary.LittleEndian.PutUint64(dst, p)
	}
}

// largePages is 600 MiB, of which 540 aren't zero.
const largePages = 150 << 10

// The first cut of a large guest: its pages are all there, but not all in this process's memory.
func TestLargeCutIsNotHeldInMemory(t *testing.T) {
	dir := t.TempDir()
	m := numbered{largePages, dir}
	tracker := memtrack.NewHashTracker(memtrack.Zeroed, 1)
	if err := tracker.Start(m); err != nil {
		t.Fatal(err)
	}
	before := anonymousBytes(t)
	d, err := tracker.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 256 MiB held, 64 to copy through, some for its lists; without the bound 540 and 64.
	if grown := anonymousBytes(t) - before; grown > 400<<20 {
		t.Errorf("a cut of %d MiB took %d MiB of memory", d.Len()>>8, grown>>20)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in its folder are %v, %v", left, err)
	}
	got, want := make([]byte, page), make([]byte, page)
	n := 0
	for p := range d.Slots() {
		n++
		m.fill(p, want)
		if err := d.ReadSlot(t.Context(), p, got); err != nil || string(got) != string(want) {
			t.Fatalf("page %d holds %x, %v", p, got[:8], err)
		}
	}
	if n != largePages/10*9 {
		t.Errorf("%d pages changed", n)
	}
	d.Rollback()
	d, err = tracker.Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.ReadSlot(t.Context(), largePages-1, got); err != nil || binary.LittleEndian.Uint64(got) != largePages-1 {
		t.Errorf("the last page holds %x, %v", got[:8], err)
	}
	d.Commit()
	if err := d.ReadSlot(t.Context(), largePages-1, got); !errors.Is(err, memtrack.ErrEnded) {
		t.Errorf("read after the end: %v", err)
	}
}

func TestACutWithoutRoomFailsAndLosesNothing(t *testing.T) {
	nowhere := numbered{largePages, filepath.Join(t.TempDir(), "nowhere")}
	tracker := memtrack.NewHashTracker(memtrack.Zeroed, 1)
	if err := tracker.Start(nowhere); err != nil {
		t.Fatal(err)
	}
	before := anonymousBytes(t)
	for range 3 {
		if _, err := tracker.Cut(t.Context()); !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), "room for changed pages") {
			t.Fatal(err)
		}
	}
	if grown := anonymousBytes(t) - before; grown > 400<<20 {
		t.Errorf("failed cuts left %d MiB of memory", grown>>20)
	}
	if n, err := tracker.Pending(t.Context()); err != nil || n != largePages/10*9 {
		t.Errorf("%d pages pending, %v", n, err)
	}
}
