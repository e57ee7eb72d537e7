package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// files shows what a diff of two checkpoints names below a folder: "added /a/f 5".
func (v *testVM) files(from, to int, below string) []string {
	v.t.Helper()
	began := time.Now()
	d, err := v.h.Diff(v.t.Context(), DiffRequest{ID: v.id, From: from, To: &to})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Logf("%d → %d: %d files, %d blocks, %d pages in %v: %s", from, to, len(d.Files), d.DiskBlocks, d.MemoryPages, time.Since(began).Round(time.Millisecond), d.Note)
	var out []string
	for _, f := range d.Files {
		v.t.Logf("  %s %s %d", f.Change, f.Path, f.Bytes)
		if strings.HasPrefix(f.Path, below) {
			out = append(out, fmt.Sprintf("%s %s %d", f.Change, f.Path, f.Bytes))
		}
	}
	if d.Note != notYetOnDisk {
		v.t.Errorf("note: %s", d.Note)
	}
	return out
}

func TestDiffNamesWhatACommandChanged(t *testing.T) {
	h := needGuests(t)
	v := runVM(t, h, "diff", 128)
	v.sh("mkdir -p /root/d; echo one > /root/d/stays; echo two > /root/d/goes; head -c 200000 /dev/zero | tr '\\0' a > /root/d/big; sync")
	first := v.checkpoint().Number
	v.sh("echo hello > /root/d/new; rm /root/d/goes; printf X | dd of=/root/d/big bs=1 seek=100000 conv=notrunc 2>/dev/null; ln -s new /root/d/link; sync")
	second := v.checkpoint().Number
	v.sh("touch /root/d/stays; cat /root/d/big > /dev/null; sync")
	third := v.checkpoint().Number

	forth := []string{"modified /root/d/big 200000", "removed /root/d/goes 4", "added /root/d/link 3", "added /root/d/new 6"}
	if got := v.files(first, second, "/root/"); !slices.Equal(got, forth) {
		t.Errorf("after the command: %q", got)
	}
	back := []string{"modified /root/d/big 200000", "added /root/d/goes 4", "removed /root/d/link 3", "removed /root/d/new 6"}
	if got := v.files(second, first, "/root/"); !slices.Equal(got, back) {
		t.Errorf("backwards: %q", got)
	}
	if got := v.files(second, third, "/root/"); len(got) != 0 {
		t.Errorf("times alone: %q", got)
	}
	if got := v.files(first, first, "/"); len(got) != 0 {
		t.Errorf("with itself: %q", got)
	}
}
