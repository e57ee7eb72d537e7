package bundle

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// busyboxDiskMiB costs nothing until it is used: empty blocks are not stored.
const busyboxDiskMiB = 1024

// rootFile is a file of a root folder that is written here.
type rootFile struct {
	path string
	mode fs.FileMode
	text string
}

// busyboxFiles is what a system needs besides busybox itself.
var busyboxFiles = []rootFile{
	{"etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"},
	{"etc/shadow", 0o640, "root:*::0:::::\nnobody:*::0:::::\n"},
	{"etc/group", 0o644, "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"},
	{"etc/shells", 0o644, "/bin/sh\n"},
	{"etc/hostname", 0o644, "flash\n"},
	{"etc/hosts", 0o644, hostsText},
	{"etc/resolv.conf", 0o644, resolvText},
	{"etc/profile", 0o644, "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PS1='\\h:\\w\\$ '\numask 022\n"},
	{"etc/fstab", 0o644, "/dev/vda / ext4 rw,relatime 0 1\n"},
	{"etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"},
}

const (
	hostsText = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	// resolvText names the resolver of the machine's user-mode network.
	resolvText = "nameserver 10.0.2.3\n"
)

// busyboxTree makes the smallest system that commands can be tried in.
func (b *builder) busyboxTree(ctx context.Context) (tree, error) {
	program, version, err := b.busyboxProgram(ctx)
	if err != nil {
		return tree{}, err
	}
	b.step("make the root folder", 0, 0, "")
	dir := filepath.Join(b.scratch, "root")
	for _, d := range []string{"", "bin", "sbin", "usr/bin", "usr/sbin", "etc", "home", "mnt", "opt", "root", "srv", "tmp", "var/log", "var/tmp", "usr/local/bin", "work/project"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return tree{}, err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "root"), 0o700); err != nil {
		return tree{}, err
	}
	files := append([]rootFile{
		{"bin/busybox", 0o755, string(program)},
		{"etc/os-release", 0o644, "ID=busybox\nNAME=\"BusyBox\"\nPRETTY_NAME=\"BusyBox " + version + "\"\nVERSION_ID=\"" + version + "\"\n"},
	}, busyboxFiles...)
	if err := writeRootFiles(dir, files); err != nil {
		return tree{}, err
	}
	if err := linkApplets(ctx, dir); err != nil {
		return tree{}, err
	}
	if err := finishTree(dir); err != nil {
		return tree{}, err
	}
	return tree{dir: dir, diskMiB: busyboxDiskMiB, facts: map[string]string{
		FactSource: "busybox", FactPackages: "busybox-static=" + version}}, nil
}

// busyboxProgram gives the program of Debian's package: the installed one if there is one, which works offline.
func (b *builder) busyboxProgram(ctx context.Context) (program []byte, version string, err error) {
	const pkg = "busybox-static"
	out, err := command{name: "dpkg-query", pkg: "dpkg", args: []string{"-W", "-f", "${db:Status-Status} ${Version}", pkg}}.run(ctx)
	if status, v, _ := strings.Cut(string(out), " "); err == nil && status == "installed" {
		for _, at := range []string{"/usr/bin/busybox", "/bin/busybox"} {
			if program, err := os.ReadFile(at); err == nil && isStatic(program) {
				return program, v, nil
			}
		}
	}
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	file, version, err := b.fetch(ctx, pkg)
	if err != nil {
		return nil, "", fmt.Errorf("busybox: %w", err)
	}
	isBusybox := func(name string) bool { return name == "bin/busybox" || name == "usr/bin/busybox" }
	err = readDeb(ctx, file, isBusybox, func(_ string, data []byte) error { program = data; return nil })
	if err == nil && !isStatic(program) {
		err = fmt.Errorf("package %s holds no static busybox", filepath.Base(file))
	}
	return program, version, err
}

// isStatic tells whether a program runs without a loader and libraries.
func isStatic(program []byte) bool {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return false
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// linkApplets makes the names under which busybox is known, as the program itself lists them.
func linkApplets(ctx context.Context, dir string) error {
	out, err := command{name: filepath.Join(dir, "bin/busybox"), pkg: "busybox-static", args: []string{"--list-full"}}.run(ctx)
	if err != nil {
		return err
	}
	var links int
	for name := range strings.FieldsSeq(string(out)) {
		if name = path.Clean("/" + name)[1:]; name == "bin/busybox" {
			continue
		}
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("/bin/busybox", at); err != nil {
			return err
		}
		links++
	}
	if links == 0 {
		return fmt.Errorf("busybox names no commands: %.80q", out)
	}
	return nil
}
