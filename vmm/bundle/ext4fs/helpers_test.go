package ext4fs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// disk is a disk in memory.
type disk []byte

func (d disk) Bytes() uint64 { return uint64(len(d)) }

func (d disk) ReadSlots(_ context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, n := range slots {
		p := d[n*blockBytes : (n+1)*blockBytes]
		if bytes.Equal(p, zeroBlock) {
			p = nil
		}
		if err := each(n, p); err != nil {
			return err
		}
	}
	return nil
}

func slotsThatDiffer(a, b disk) []uint64 {
	var slots []uint64
	for n := range uint64(len(b) / blockBytes) {
		if at := n * blockBytes; !bytes.Equal(a[at:at+blockBytes], b[at:at+blockBytes]) {
			slots = append(slots, n)
		}
	}
	return slots
}

// features are those of the disks that vmm/bundle makes.
const features = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum"

// e2fs is one file system in a file, changed with the tools of e2fsprogs.
type e2fs struct {
	t    testing.TB
	file string
}

// makeFS makes one with the files of a folder.
func makeFS(t testing.TB, dir string, mib int) *e2fs {
	t.Helper()
	for _, tool := range []string{"mkfs.ext4", "debugfs", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s of e2fsprogs", tool)
		}
	}
	f := &e2fs{t, filepath.Join(t.TempDir(), "disk")}
	f.run("mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-O", features, "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
		"-d", dir, f.file, fmt.Sprintf("%dM", mib))
	return f
}

func (f *e2fs) run(name string, args ...string) string {
	f.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "MKE2FS_CONFIG=/dev/null", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// debug runs commands of debugfs, which tells of errors in its output only.
func (f *e2fs) debug(commands ...string) string {
	f.t.Helper()
	script := filepath.Join(f.t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(strings.Join(commands, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	out := f.run("debugfs", "-w", "-f", script, f.file)
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "File not found") || strings.Contains(line, "while ") || strings.Contains(line, "Unknown request") || strings.Contains(line, "Usage") {
			f.t.Fatalf("debugfs: %s", out)
		}
	}
	return out
}

func (f *e2fs) disk() disk {
	f.t.Helper()
	p, err := os.ReadFile(f.file)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// host makes a file outside the file system, for debugfs to write into it.
func (f *e2fs) host(content []byte) string {
	f.t.Helper()
	name := filepath.Join(f.t.TempDir(), "content")
	if err := os.WriteFile(name, content, 0o644); err != nil {
		f.t.Fatal(err)
	}
	return name
}

// tree makes a folder of files, "link → target" for symbolic links, names ending with / for directories.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "→ "); ok {
			err = os.Symlink(target, p)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func compare(t testing.TB, before, after disk) Result {
	t.Helper()
	r, err := Compare(context.Background(), before, after, slotsThatDiffer(before, after), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var marks = map[Kind]string{Added: "+", Removed: "-", Modified: "~"}

// shown is a result a test can compare: "+ /new 4; ~ /old 7".
func shown(r Result) string {
	var lines []string
	for _, c := range r.Changes {
		lines = append(lines, fmt.Sprintf("%s %s %d", marks[c.Kind], c.Path, c.Bytes))
	}
	return strings.Join(lines, "; ")
}

func want(t testing.TB, before, after disk, lines ...string) {
	t.Helper()
	if got := shown(compare(t, before, after)); got != strings.Join(lines, "; ") {
		t.Errorf("got  %s\nwant %s", got, strings.Join(lines, "; "))
	}
}
