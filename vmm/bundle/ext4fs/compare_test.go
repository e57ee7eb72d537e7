package ext4fs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachKindOfChangeIsTold changes one file system step by step and compares it with itself before each step.
func TestEachKindOfChangeIsTold(t *testing.T) {
	long := strings.Repeat("0123456789", 10)
	f := makeFS(t, tree(t, map[string]string{
		"etc/hosts": "127.0.0.1 a\n", "etc/fast": "→ hosts", "etc/slow": "→ /" + long, "etc/d/deep/file": "x", "var/big": strings.Repeat("a", 1<<20), "empty/": "",
	}), 32)
	content := func(s string) string { return f.host([]byte(s)) }
	for _, step := range []struct {
		name     string
		commands []string
		want     []string
	}{
		{"add", []string{"write " + content("hello") + " etc/new"}, []string{"+ /etc/new 5"}},
		{"add an empty file", []string{"write /dev/null etc/none"}, []string{"+ /etc/none 0"}},
		{"add a directory with a file", []string{"mkdir srv", "mkdir srv/www", "write " + content("page") + " srv/www/index"},
			[]string{"+ /srv/ 0", "+ /srv/www/ 0", "+ /srv/www/index 4"}},
		{"replace the content", []string{"rm etc/new", "write " + content("jello") + " etc/new"}, []string{"~ /etc/new 5"}},
		{"replace by the same content elsewhere", []string{"write " + content("jello") + " etc/other", "rm etc/new", "ln etc/other etc/new", "unlink etc/other"}, nil},
		{"mode", []string{"sif etc/hosts mode 0100600"}, []string{"~ /etc/hosts 12"}},
		{"owner", []string{"sif etc/hosts uid 70000"}, []string{"~ /etc/hosts 12"}},
		{"mode of a directory", []string{"sif etc/d mode 040700"}, []string{"~ /etc/d/ 0"}},
		{"mode of the root", []string{"sif / mode 040700"}, []string{"~ / 0"}},
		{"times only", []string{"sif etc/hosts mtime 20200101", "sif etc/hosts atime 20200101", "sif etc/d ctime 20200101"}, nil},
		{"hard link", []string{"ln etc/hosts var/hosts", "sif etc/hosts links_count 2"}, []string{"+ /var/hosts 12"}},
		{"change a file of two names", []string{"sif etc/hosts gid 7"}, []string{"~ /etc/hosts 12", "~ /var/hosts 12"}},
		{"rename", []string{"ln etc/new etc/newer", "unlink etc/new"}, []string{"- /etc/new 5", "+ /etc/newer 5"}},
		{"rename a directory", []string{"ln etc/d var/moved", "unlink etc/d"},
			[]string{"- /etc/d/ 0", "- /etc/d/deep/ 0", "- /etc/d/deep/file 1", "+ /var/moved/ 0", "+ /var/moved/deep/ 0", "+ /var/moved/deep/file 1"}},
		{"link target", []string{"rm etc/fast", "symlink etc/fast passwd"}, []string{"~ /etc/fast 6"}},
		{"the same link target", []string{"rm etc/fast", "symlink etc/fast passwd"}, nil},
		{"long link target", []string{"rm etc/slow", "symlink etc/slow /" + strings.Replace(long, "9", "8", 1)}, []string{"~ /etc/slow 101"}},
		{"a device", []string{"mknod null c 1 3"}, []string{"+ /null 0"}},
		{"another device", []string{"rm null", "mknod null c 1 5"}, []string{"~ /null 0"}},
		{"a file becomes a directory", []string{"rm etc/hosts", "mkdir etc/hosts", "write " + content("in") + " etc/hosts/in"}, []string{"~ /etc/hosts/ 0", "+ /etc/hosts/in 2"}},
		{"a directory becomes a file", []string{"rm etc/hosts/in", "rmdir etc/hosts", "write " + content("flat") + " etc/hosts"}, []string{"~ /etc/hosts 4", "- /etc/hosts/in 2"}},
		{"remove", []string{"rm var/big", "rmdir empty"}, []string{"- /empty/ 0", "- /var/big 1048576"}},
		{"a name of many bytes", []string{"write " + content("") + " " + strings.Repeat("n", 255)}, []string{"+ /" + strings.Repeat("n", 255) + " 0"}},
		{"nothing", nil, nil},
	} {
		before := f.disk()
		if step.commands != nil {
			f.debug(step.commands...)
		}
		t.Run(step.name, func(t *testing.T) { want(t, before, f.disk(), step.want...) })
	}
}

// An overwrite in place whose inode is still in the guest's memory changes blocks of data and nothing else.
func TestDataOverwrittenInPlaceNamesItsFile(t *testing.T) {
	files := map[string]string{"a/big": strings.Repeat("a", 1<<20)}
	for i := range 300 {
		files[fmt.Sprintf("b/%d", i)] = "small"
	}
	f := makeFS(t, tree(t, files), 32)
	before, after := f.disk(), f.disk()
	at := bytes.Index(after, bytes.Repeat([]byte("a"), blockBytes))
	copy(after[at+5*blockBytes:], "changed")
	want(t, before, after, "~ /a/big 1048576")

	free := f.disk() // of a block in no file nothing is told
	copy(free[len(free)-100*blockBytes:], "free")
	want(t, before, free)
}

func TestBytesBehindTheEndOfAFileDontCount(t *testing.T) {
	f := makeFS(t, tree(t, map[string]string{"f": strings.Repeat("a", 100)}), 16)
	before, after := f.disk(), f.disk()
	at := bytes.Index(after, bytes.Repeat([]byte("a"), 100))
	after[at+100] = 'x'
	want(t, before, after)
	after[at+99] = 'x'
	want(t, before, after, "~ /f 100")
}

func TestLargeSparseFileIsComparedByItsBlocksOnly(t *testing.T) {
	dir := t.TempDir()
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(600) { // so many pieces that they need blocks of the extent tree
		if _, err := sparse.WriteAt([]byte("here"), i<<30/16); err != nil {
			t.Fatal(err)
		}
	}
	sparse.Truncate(1 << 40)
	sparse.Close()
	f := makeFS(t, dir, 32)
	before := f.disk()
	after := f.disk()
	at := bytes.LastIndex(after, []byte("here\x00\x00\x00"))
	copy(after[at:], "HERE")
	want(t, before, after, "~ /sparse 1099511627776")

	f.debug("write " + f.host([]byte("small")) + " other")
	want(t, before, f.disk(), "+ /other 5")
}

func TestDirectoryOfThousandsIsComparedByName(t *testing.T) {
	files := map[string]string{}
	for i := range 1500 {
		files[fmt.Sprintf("many/file-with-a-longer-name-%05d", i)] = ""
	}
	f := makeFS(t, tree(t, files), 32)
	f.run("e2fsck", "-fyD", f.file) // makes the directory a hashed one
	before := f.disk()
	if out := f.debug("htree_dump many"); !strings.Contains(out, "Root node dump") {
		t.Fatalf("the directory isn't hashed: %.300s", out)
	}
	f.debug("rm many/file-with-a-longer-name-00750", "write "+f.host([]byte("12"))+" many/file-with-a-longer-name-0075x")
	want(t, before, f.disk(), "- /many/file-with-a-longer-name-00750 0", "+ /many/file-with-a-longer-name-0075x 2")

	var gone []string
	for i := range 700 {
		gone = append(gone, fmt.Sprintf("rm many/file-with-a-longer-name-%05d", i))
	}
	f.debug(gone...)
	after := f.disk()
	r, err := Compare(context.Background(), before, after, slotsThatDiffer(before, after), 500)
	if err != nil || !r.More || len(r.Changes) != 500 {
		t.Errorf("with a limit of 500: %d changes, more %v, %v", len(r.Changes), r.More, err)
	}
	if r := compare(t, before, after); r.More || len(r.Changes) != 702 {
		t.Errorf("without: %d changes, more %v", len(r.Changes), r.More)
	}
}

func TestContentThatTakesTooLongToCompareIsCalledModified(t *testing.T) {
	f := makeFS(t, tree(t, map[string]string{}), 400)
	big := f.host(make([]byte, 150<<20))
	if err := os.WriteFile(big, bytes.Repeat([]byte("content!"), 150<<20/8), 0o600); err != nil {
		t.Fatal(err)
	}
	f.debug("write " + big + " f")
	before := f.disk()
	f.debug("write "+big+" g", "unlink f", "ln g f", "unlink g")
	if r := compare(t, before, f.disk()); shown(r) != "~ /f 157286400" || r.Guessed != 1 {
		t.Errorf("%s, guessed %d", shown(r), r.Guessed)
	}
}
