package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/vmm/guest"
)

// These tests run this agent as /init of a real machine under QEMU's emulation, with a root disk of busybox.

const (
	bootLimit = 2 * time.Minute // under emulation, beside other work
	kernelDir = "/var/cache/flash/test"
)

var vmModules = strings.Fields(`virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci
	virtio_blk virtio_console failover net_failover virtio_net`)

// needVM skips a test that can't have a machine, or fails it where machines are required.
func needVM(t *testing.T, format string, args ...any) {
	t.Helper()
	if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// machine is a running guest.
type machine struct {
	place
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	exited  chan struct{}
	started time.Time
}

// boot starts a machine whose root disk has some more files, and waits for its agent.
func bootVM(t *testing.T, files map[string]string) *machine {
	t.Helper()
	m := startVM(t, files)
	m.connect(1)
	t.Logf("boot to the agent's first answer: %v", time.Since(m.started).Round(time.Millisecond))
	return m
}

// startVM starts a machine without waiting for it.
func startVM(t *testing.T, files map[string]string) *machine {
	t.Helper()
	for _, tool := range []string{"qemu-system-x86_64", "mke2fs", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			needVM(t, "%v", err)
		}
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		needVM(t, "there is no static busybox: %v", err)
	}
	kernel, modules, err := testKernel()
	if err != nil {
		needVM(t, "there is no kernel to boot: %v", err)
	}
	dir, err := os.MkdirTemp("", "flash-agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{place: place{groups: "/sys/fs/cgroup/flash"}, t: t, dir: dir, exited: make(chan struct{})}
	initrd := m.buildInitrd(modules)
	disk := m.buildDisk(files)
	m.cmd = exec.Command("qemu-system-x86_64", "-M", "pc-q35-7.2,sata=off,smbus=off,hpet=off", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "384",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:"+m.path("console"),
		"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 reboot=t no_timer_check random.trust_cpu=off flash.hostname=testvm",
		"-device", "virtio-serial-pci,max_ports=4", "-chardev", "socket,id=agent,path="+m.path("a")+",server=on,wait=off",
		"-device", "virtserialport,nr=1,chardev=agent,name=flash.agent",
		"-drive", "if=none,id=d,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=d",
		"-netdev", "user,id=n,restrict=on", "-device", "virtio-net-pci,netdev=n,mac=52:54:00:00:00:01,romfile=")
	var errs bytes.Buffer
	m.cmd.Stderr = &errs
	m.started = time.Now()
	if err := m.cmd.Start(); err != nil {
		needVM(t, "%v", err)
	}
	go func() { m.cmd.Wait(); close(m.exited) }()
	t.Cleanup(func() {
		if m.client != nil {
			m.client.Close()
		}
		m.cmd.Process.Kill()
		<-m.exited
		if t.Failed() {
			t.Logf("console:\n%s\nQEMU: %s", m.console(), &errs)
		}
	})
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) console() string {
	b, _ := os.ReadFile(m.path("console"))
	return string(b)
}

// connect begins a session of a new generation over a new connection.
func (m *machine) connect(generation uint64) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), bootLimit)
	defer cancel()
	var conn net.Conn
	var err error
	for {
		if conn, err = net.Dial("unix", m.path("a")); err == nil {
			break
		}
		select {
		case <-m.exited:
			m.t.Fatal("QEMU ended")
		case <-ctx.Done():
			m.t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	var info guest.Info
	m.client, info, err = guest.Connect(ctx, conn, generation)
	if err != nil {
		m.t.Fatal(err)
	}
	if info.BootID == "" || info.Version == "" {
		m.t.Errorf("the agent says of itself: %+v", info)
	}
}

// testKernel gives a kernel and the folder of its modules, fetching Debian's cloud kernel the first time.
func testKernel() (kernel, modules string, err error) {
	root := filepath.Join(kernelDir, "kernel")
	if _, err := os.Stat(root); err != nil {
		if err := fetchKernel(root); err != nil {
			return "", "", err
		}
	}
	kernels, _ := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if len(kernels) == 0 {
		return "", "", fmt.Errorf("no kernel in %s", root)
	}
	return kernels[0], filepath.Join(root, "lib/modules"), nil
}

func fetchKernel(root string) error {
	out, err := exec.Command("apt-cache", "depends", "linux-image-cloud-amd64").Output()
	if err != nil {
		return fmt.Errorf("apt-cache depends: %w", err)
	}
	_, name, _ := strings.Cut(string(out), "Depends: ")
	name, _, _ = strings.Cut(name, "\n")
	if err := os.MkdirAll(kernelDir, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(kernelDir, "fetch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, script := range []string{`apt-get download "$1"`, `dpkg-deb -x *.deb unpacked`} {
		cmd := exec.Command("sh", "-c", script, "sh", name)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
	}
	err = os.Rename(filepath.Join(dir, "unpacked"), root)
	if _, there := os.Stat(root); there == nil {
		return nil // or another test was faster
	}
	return err
}

// buildInitrd puts this agent, as make builds it, and the modules into an archive for the kernel.
func (m *machine) buildInitrd(modules string) string {
	m.t.Helper()
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", m.path("init"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		m.t.Fatalf("build the agent: %v: %s", err, out)
	}
	var archive bytes.Buffer
	add := func(name string, mode int, data []byte) {
		fmt.Fprintf(&archive, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", archive.Len(), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
		archive.WriteString(name + "\x00")
		archive.Write(make([]byte, -archive.Len()&3))
		archive.Write(data)
		archive.Write(make([]byte, -archive.Len()&3))
	}
	agent, err := os.ReadFile(m.path("init"))
	if err != nil {
		m.t.Fatal(err)
	}
	add("init", 0o100755, agent)
	add("modules", 0o040755, nil)
	var list []string
	for _, name := range vmModules {
		found, _ := filepath.Glob(filepath.Join(modules, "*/kernel/*/*/"+name+".ko"))
		if len(found) == 0 {
			found, _ = filepath.Glob(filepath.Join(modules, "*/kernel/*/"+name+".ko"))
		}
		if len(found) == 0 {
			continue // built in
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			m.t.Fatal(err)
		}
		add("modules/"+name+".ko", 0o100644, b)
		list = append(list, name+".ko")
	}
	add("modules.list", 0o100644, []byte(strings.Join(list, "\n")+"\n"))
	add("TRAILER!!!", 0, nil)
	if err := os.WriteFile(m.path("initrd"), archive.Bytes(), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return m.path("initrd")
}

// buildDisk makes an ext4 disk with busybox, two users and some files. A text that begins with #! is made executable.
func (m *machine) buildDisk(files map[string]string) string {
	m.t.Helper()
	root := m.path("root")
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		m.t.Fatal(err)
	}
	all := map[string]string{
		"bin/busybox": string(busybox),
		"etc/passwd":  "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann:/home/ann:/bin/sh\n",
		"etc/group":   "root:x:0:\nann:x:1000:\nstaff:x:50:ann\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for _, dir := range []string{"root", "home/ann", "bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	for name, text := range all {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") || name == "bin/busybox" {
			mode = 0o755
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			m.t.Fatal(err)
		}
	}
	out, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		os.Symlink("busybox", filepath.Join(root, "bin", name))
	}
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", root, m.path("disk"), "256M").CombinedOutput(); err != nil {
		m.t.Fatalf("make the root disk: %v: %s", err, out)
	}
	return m.path("disk")
}
