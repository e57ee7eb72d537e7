package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runtimeEnv is for the agent alone. Go's runtime interrupts whatever has run for 10 ms by a signal; right after a restore
// under emulation everything takes that long, and a signal costs 700 basic blocks to be translated.
const runtimeEnv = "GODEBUG=asyncpreemptoff=1"

const (
	rootDevice = "/dev/vda"
	rootLimit  = 20 * time.Second // for the root disk to appear after the modules have been loaded
	newRoot    = "/newroot"
)

// mount is one file system to mount.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

const harmless = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// early is what loading modules and finding the disk need; it moves along into the new root.
var early = []mount{
	{"proc", "/proc", "proc", harmless, ""},
	{"sysfs", "/sys", "sysfs", harmless, ""},
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
}

// late is what programs expect, relative to the new root.
var late = []mount{
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", harmless, "nsdelegate"},
}

// boot turns an initrd into a running guest. It returns only with the reason why it couldn't.
func boot() error {
	for _, m := range early {
		if err := m.mountBelow("/"); err != nil {
			return err
		}
	}
	if err := loadModules("/modules.list", "/modules"); err != nil {
		return err
	}
	args, err := kernelArgs()
	if err != nil {
		return err
	}
	if err := mountRoot(args); err != nil {
		return err
	}
	if err := copySelf(filepath.Join(newRoot, agentPath)); err != nil {
		return err
	}
	if err := switchRoot(); err != nil {
		return fmt.Errorf("move to the root disk: %w", err)
	}
	if err := setUp(args); err != nil {
		return err
	}
	return becomeInit()
}

func (m mount) mountBelow(root string) error {
	target := filepath.Join(root, m.target)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	if err := unix.Mount(m.source, target, m.kind, m.flags, m.data); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// loadModules loads the modules a list names, in its order.
func loadModules(list, dir string) error {
	b, err := os.ReadFile(list)
	if os.IsNotExist(err) {
		return nil // a kernel that has everything built in
	}
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(b)) {
		if err := loadModule(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

// kernelArgs gives the kernel's command line as key=value.
func kernelArgs() (map[string]string, error) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	args := map[string]string{}
	for word := range strings.FieldsSeq(string(b)) {
		key, value, _ := strings.Cut(word, "=")
		args[key] = value
	}
	return args, nil
}

// mountRoot mounts the root disk at newRoot, and in it everything else.
func mountRoot(args map[string]string) error {
	device := rootDevice
	if d := args["flash.root"]; d != "" {
		device = d
	}
	deadline := time.Now().Add(rootLimit)
	for {
		if _, err := os.Stat(device); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the root disk %s hasn't appeared", device)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := (mount{device, newRoot, "ext4", unix.MS_NOATIME, ""}).mountBelow("/"); err != nil {
		return fmt.Errorf("the root disk %s: %w", device, err)
	}
	for _, m := range early {
		target := filepath.Join(newRoot, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.target, target, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", m.target, err)
		}
	}
	for _, m := range late {
		if err := m.mountBelow(newRoot); err != nil {
			return err
		}
	}
	return nil
}

// copySelf keeps this program when the initrd goes away.
func copySelf(to string) error {
	from, err := os.Open(filepath.Join(newRoot, "proc/self/exe"))
	if err != nil {
		return fmt.Errorf("keep the agent: %w", err)
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// switchRoot frees what the initrd holds in memory and makes newRoot the root.
func switchRoot() error {
	var s unix.Stat_t
	if err := unix.Stat("/", &s); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		return err
	}
	if fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.TMPFS_MAGIC { // never delete anything but an initrd
		deleteTree("/", uint64(s.Dev))
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// deleteTree removes what is below dir on this device. What can't be removed only costs memory.
func deleteTree(dir string, device uint64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var s unix.Stat_t
		if unix.Lstat(path, &s) != nil || uint64(s.Dev) != device {
			continue
		}
		if e.IsDir() {
			deleteTree(path, device)
			unix.Rmdir(path)
		} else {
			unix.Unlink(path)
		}
	}
}

// setUp gives the guest its name and its network.
func setUp(args map[string]string) error {
	name := args["flash.hostname"]
	if name == "" {
		b, _ := os.ReadFile("/etc/hostname")
		name = strings.TrimSpace(string(b))
	}
	if name == "" {
		name = "flash"
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set the host name to %s: %w", name, err)
	}
	if err := bringUpNetwork(); err != nil {
		return err
	}
	return nil
}

// becomeInit goes on as the guest's init, or starts the agent beside the init that the root disk names.
func becomeInit() error {
	b, err := os.ReadFile(initFile)
	init := strings.Fields(string(b))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read %s: %w", initFile, err)
	}
	env := []string{"PATH=" + defaultPath, "HOME=/", "TERM=linux"}
	if len(init) == 0 {
		if err := writeNameFiles(); err != nil {
			return err
		}
		return fmt.Errorf("go on as %s: %w", agentPath, unix.Exec(agentPath, []string{agentPath, "serve"}, append(env, runtimeEnv)))
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: append(env[:len(env):len(env)], runtimeEnv), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if _, err := syscall.ForkExec(agentPath, []string{agentPath, "serve"}, attr); err != nil {
		return fmt.Errorf("start the agent beside %s: %w", init[0], err)
	}
	return fmt.Errorf("start the init %s: %w", init[0], unix.Exec(init[0], init, env))
}
