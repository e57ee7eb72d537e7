package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"flash/cas"
	"flash/cas/castest"
)

const fullDirVariable = "STORE_TEST_FULL_DIR"

// smallDisk mounts a file system of its own for the test. A full one is what kills Badger, so only a real one will do.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("flash-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatalf("mount a tmpfs: %v", err)
		}
		t.Skipf("a small disk can't be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func fillerOf(disk string) string { return filepath.Join(disk, "filler") }

// fillDisk takes all that is left of a disk.
func fillDisk(disk string) error {
	f, err := os.OpenFile(fillerOf(disk), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	p := make([]byte, 1<<20)
	for len(p) > 0 {
		if _, err := f.Write(p); errors.Is(err, unix.ENOSPC) {
			p = p[:len(p)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// filling is a delta whose disk becomes full while it is being stored.
type filling struct {
	delta
	disk string
	at   uint64
}

func (f filling) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if slot == f.at {
		if err := fillDisk(f.disk); err != nil {
			return err
		}
	}
	return f.delta.ReadSlot(ctx, slot, dst)
}

// A full disk refuses checkpoints, at whatever point of one it becomes full. It takes nothing that was acknowledged,
// kills nobody, and with room again all goes on.
func TestAFullDiskLosesNothingAcknowledged(t *testing.T) {
	const slots = memBytes / cas.SlotBytes
	ctx := t.Context()
	disk := smallDisk(t, 192)
	chunks := openPacks(t, filepath.Join(disk, "chunks"))
	s := reopen(t, filepath.Join(disk, "meta"), chunks)
	newVM(t, s, "vm")
	have, states := delta{}, map[int]delta{}
	seed := uint64(0)
	next := func(n int) delta {
		ch := delta{}
		for slot := range uint64(n) {
			seed++
			ch[slot] = page(seed)
		}
		return ch
	}
	try := func(ch delta, changes Changes) error {
		c, err := tryCheckpoint(s, "vm", memBytes, changes)
		if err == nil {
			maps.Copy(have, ch)
			states[c.Number] = maps.Clone(have)
		}
		return err
	}
	must := func() {
		t.Helper()
		ch := next(20)
		if err := try(ch, ch); err != nil {
			t.Fatal(err)
		}
	}
	must()
	for _, at := range []uint64{0, 1, slots / 2, slots - 1} { // full in the middle of one
		ch := next(slots)
		if err := try(ch, filling{ch, disk, at}); !errors.Is(err, cas.ErrNoSpace) {
			t.Fatalf("full at slot %d of a checkpoint: %v", at, err)
		}
		if err := s.SetVMState(ctx, "vm", []byte(`{}`)); !errors.Is(err, cas.ErrNoSpace) {
			t.Fatalf("a record on a full disk: %v", err)
		}
		if err := os.Remove(fillerOf(disk)); err != nil {
			t.Fatal(err)
		}
		must()
	}
	for range 1000 { // full by checkpoints alone
		ch := next(slots)
		err := try(ch, ch)
		if err == nil {
			continue
		}
		if !errors.Is(err, cas.ErrNoSpace) {
			t.Fatalf("the disk is full of checkpoints: %v", err)
		}
		break
	}
	// The store can still be told what its VMs do: chunks leave more free than records need.
	if err := s.SetVMState(ctx, "vm", []byte(`{"state":"stopped"}`)); err != nil {
		t.Errorf("a record when there is no room for chunks: %v", err)
	}
	if err := errors.Join(s.Close(), chunks.Close()); err != nil {
		t.Fatal(err)
	}
	chunks = openPacks(t, filepath.Join(disk, "chunks"))
	defer chunks.Close()
	s = reopen(t, filepath.Join(disk, "meta"), chunks)
	defer s.Close()
	h, err := s.History(ctx, "vm")
	if err != nil || len(h) != len(states) {
		t.Fatalf("%d checkpoints, want %d, %v", len(h), len(states), err)
	}
	for _, c := range h {
		mustHold(t, image(t, s, c.Snapshot, "mem"), states[c.Number])
	}
	t.Logf("%d checkpoints fit", len(h))
}

// Closing writes what Badger has in memory, through a mapping: on a full disk that is a SIGBUS.
func TestClosingOnAFullDiskIsNoDeath(t *testing.T) {
	disk := smallDisk(t, 128)
	dir := filepath.Join(disk, "meta")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullDirVariable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	if _, err := Open(t.Context(), Config{Dir: dir, Chunks: castest.NewMemory()}); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("opened on a full disk: %v", err)
	}
	if err := os.Remove(fillerOf(disk)); err != nil {
		t.Fatal(err)
	}
	tr := &trials{}
	s, err := Open(t.Context(), Config{Dir: dir, Chunks: castest.NewMemory(), Trial: tr.try})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if vms, err := s.VMs(t.Context()); err != nil || len(vms) != fullVMs || tr.count != 1 {
		t.Errorf("%d of %d VMs, %v; %d trials", len(vms), fullVMs, err, tr.count)
	}
}

const fullVMs = 300

// closeWhenFull is the other process of TestClosingOnAFullDiskIsNoDeath.
func closeWhenFull(dir string) error {
	ctx := context.Background()
	s, err := Open(ctx, Config{Dir: dir, Chunks: castest.NewMemory()})
	if err != nil {
		return err
	}
	for i := range fullVMs {
		if err := s.CreateVM(ctx, VM{ID: fmt.Sprintf("vm-%d", i), Spec: []byte(`"` + strings.Repeat("x", 4000) + `"`)}, nil); err != nil {
			return err
		}
	}
	if err := fillDisk(filepath.Dir(dir)); err != nil {
		return err
	}
	return s.Close()
}
