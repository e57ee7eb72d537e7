//go:build linux

package bundle

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needTool skips where a program is missing, unless FLASH_REQUIRE says that this must not be.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := lookPath(name)
	if err != nil {
		unavailable(t, err.Error())
	}
	return path
}

// debugfs asks e2fsprogs' own reader about a disk.
func debugfs(t *testing.T, disk, request string) string {
	t.Helper()
	out, err := exec.Command(needTool(t, "debugfs"), "-R", request, disk).CombinedOutput()
	if err != nil {
		t.Fatalf("debugfs %s: %v: %s", request, err, out)
	}
	return string(out)
}

func makeDisk(t *testing.T, dir string, diskMiB int) string {
	t.Helper()
	needTool(t, "mkfs.ext4")
	disk := filepath.Join(t.TempDir(), "disk0")
	if err := newBuilder(t).makeExt4(context.Background(), dir, disk, diskMiB); err != nil {
		t.Fatal(err)
	}
	return disk
}

func TestTheDiskHoldsTheTreeExactly(t *testing.T) {
	needRoot(t)
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	lt, err := openLayerTree(root, defaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	defer lt.Close()
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	tool := file("tool", "contents")
	tool.Mode, tool.Uid, tool.Gid = 0o4750, 1234, 70000
	tool.PAXRecords["SCHILY.xattr.user.note"] = "kept"
	tool.PAXRecords["SCHILY.xattr.security.capability"] = capability
	if err := lt.apply(context.Background(), bytes.NewReader(tarOf(t, tool, hardlink("again", "tool"), symlink("link", "tool")))); err != nil {
		t.Fatal(err)
	}
	disk := makeDisk(t, root, 64)
	stat := debugfs(t, disk, "stat /tool")
	for _, want := range []string{"Mode:  04750", "User:  1234", "Group: 70000", "Links: 2", "mtime: 0x3b9aca00", "crtime: 0x386d4380", `user.note (4) = "kept"`, "security.capability (20) = 01 00 00 02 00 04"} {
		if !strings.Contains(stat, want) {
			t.Errorf("no %q in\n%s", want, stat)
		}
	}
	if got := debugfs(t, disk, "cat /again"); !strings.HasSuffix(got, "contents") {
		t.Errorf("%q", got)
	}
	if got := debugfs(t, disk, "stat /link"); !strings.Contains(got, `Fast link dest: "tool"`) {
		t.Errorf("%s", got)
	}
	if got := debugfs(t, disk, "stats -h"); !strings.Contains(got, "has_journal") || !strings.Contains(got, "clean") {
		t.Errorf("%s", got)
	}
}

func TestADiskTooSmallSaysSo(t *testing.T) {
	needRoot(t)
	needTool(t, "mkfs.ext4")
	root := t.TempDir()
	big := make([]byte, 48<<20)
	for i := range big {
		big[i] = byte(i>>12) | 1
	}
	if err := os.WriteFile(filepath.Join(root, "big"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	err := newBuilder(t).makeExt4(context.Background(), root, filepath.Join(t.TempDir(), "disk0"), 32)
	if !errors.Is(err, ErrDiskTooSmall) {
		t.Errorf("%v", err)
	}
}

// slotsOf reads all slots of a disk that aren't zero, by contents.
func slotsOf(t *testing.T, disk string) map[string]bool {
	t.Helper()
	s, err := openSparse(context.Background(), disk)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]bool{}
	buf := make([]byte, slotBytes)
	for slot := range s.Slots() {
		if err := s.ReadSlot(context.Background(), slot, buf); err != nil {
			t.Fatal(err)
		}
		found[string(buf)] = true
	}
	return found
}

func TestDisksThatShareAFileShareItsBlocks(t *testing.T) {
	needRoot(t)
	random := rand.NewChaCha8([32]byte{1})
	shared := make([]byte, 4<<20+100)
	random.Read(shared)
	var disks []map[string]bool
	for i, name := range []string{"x", "some/where/else"} {
		root := t.TempDir()
		own := make([]byte, (i+1)*100_000)
		random.Read(own)
		for at, data := range map[string][]byte{name: shared, "own": own} {
			at = filepath.Join(root, at)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		disks = append(disks, slotsOf(t, makeDisk(t, root, 64)))
	}
	var both int
	for slot := range disks[0] {
		if disks[1][slot] {
			both++
		}
	}
	if want := 1 + 4<<20/slotBytes; both < want {
		t.Errorf("%d blocks are in both, want the file's %d", both, want)
	}
}

func TestEqualTreesGiveAlmostEqualDisks(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a"), bytes.Repeat([]byte("x"), 10000), 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := slotsOf(t, makeDisk(t, root, 64)), slotsOf(t, makeDisk(t, root, 64))
	var differ int
	for slot := range a {
		if !b[slot] {
			differ++
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d blocks differ", differ, len(a))
	}
}

func TestOnlySlotsWithSomethingInThemAreGiven(t *testing.T) {
	at := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	const length = 40<<20 + 100 // the last slot is short
	pieces := map[int64]string{0: "a", 5*slotBytes + 4000: "across two slots" + strings.Repeat("x", 200), 9 << 20: strings.Repeat("\x00", 3*slotBytes) + "z", length - 3: "end"}
	for off, text := range pieces {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	s, err := openSparse(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := slices.Collect(s.Slots())
	if want := []uint64{0, 5, 6, 9<<20/slotBytes + 3, 40 << 20 / slotBytes}; !slices.Equal(got, want) || s.bytes != length {
		t.Errorf("got %v of %d bytes, want %v", got, s.bytes, want)
	}
	buf := bytes.Repeat([]byte{0xff}, slotBytes)
	if err := s.ReadSlot(context.Background(), 40<<20/slotBytes, buf); err != nil || string(buf[97:100]) != "end" || !isZero(buf[100:]) {
		t.Errorf("the last slot: %v %q", err, buf[90:110])
	}
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB on disk", st.Blocks/2)
}

func TestAnEmptyFileIsAllZero(t *testing.T) {
	at := filepath.Join(t.TempDir(), "hole")
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at, 1<<30); err != nil {
		t.Fatal(err)
	}
	s, err := openSparse(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := slices.Collect(s.Slots()); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
