package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	shareTag = "host"     // of the host's root
	root     = "/newroot" // where it is mounted; the initrd has that folder
)

// runInit is the outer machine's init. It ends with the machine.
func runInit() {
	status, err := initMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nested: init:", err) // the console
	} else if err := writeTo("/dev/ttyS2", fmt.Sprintf("exit %d\n", status)); err != nil {
		fmt.Fprintln(os.Stderr, "nested: init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func initMain() (status int, err error) {
	for _, m := range [][3]string{{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"devtmpfs", "/dev", "devtmpfs"}} {
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil && err != unix.EBUSY {
			return 0, fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	data, err := os.ReadFile("/" + jobFile)
	if err != nil {
		return 0, err
	}
	j, err := decodeJob(data)
	if err != nil {
		return 0, err
	}
	if err := loadModules(); err != nil {
		return 0, err
	}
	if err := mountRoot(); err != nil {
		return 0, err
	}
	if err := loopbackUp(); err != nil {
		return 0, fmt.Errorf("loopback: %w", err)
	}
	return runJob(j)
}

func loadModules() error {
	list, err := os.ReadFile("/modules.list")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		f, err := os.Open(filepath.Join("/modules", name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

// mountRoot mounts the host's root and over it what a command may write to.
func mountRoot() error {
	// The host doesn't change files under us; its cache saves most of the slow way through 9p.
	const options = "trans=virtio,version=9p2000.L,cache=loose,msize=512000"
	if err := unix.Mount(shareTag, root, "9p", unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("mount the host's root: %w", err)
	}
	for _, dir := range []string{"proc", "sys", "dev"} {
		if err := unix.Mount("/"+dir, filepath.Join(root, dir), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s there: %w", dir, err)
		}
	}
	if err := unix.Mount("cgroup2", filepath.Join(root, "sys/fs/cgroup"), "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount control groups: %w", err)
	}
	// As udev has it on a common host; without that only root's QEMUs could use it.
	if err := os.Chmod(filepath.Join(root, "dev/kvm"), 0o666); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, dir := range []string{"dev/shm", "dev/pts"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(root, "dev/pts"), "devpts", 0, ""); err != nil {
		return fmt.Errorf("mount dev/pts: %w", err)
	}
	for _, dir := range []string{"tmp", "run", "var/tmp", "dev/shm"} {
		if err := unix.Mount("tmpfs", filepath.Join(root, dir), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// loopbackUp gives the machine 127.0.0.1.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// runJob runs the command in the host's root and reaps everybody until it ends: this is process 1.
func runJob(j job) (status int, err error) {
	out, err := openSerial("/dev/ttyS1")
	if err != nil {
		return 0, err
	}
	defer out.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	defer null.Close()
	// A shell finds the command in PATH, in the new root; and it says so where it doesn't.
	argv := append([]string{"/bin/sh", "-c", `exec "$@"`, "sh"}, j.Command...)
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Dir: j.Dir, Env: j.Env,
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Chroot: root, Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", strings.Join(j.Command, " "), err)
	}
	for {
		var ws unix.WaitStatus
		ended, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case ended == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case ended == pid:
			return ws.ExitStatus(), nil
		}
	}
}

// openSerial opens a serial port on which bytes go out as they are.
func openSerial(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// writeTo writes to a serial port and waits until it is out.
func writeTo(path, text string) error {
	f, err := openSerial(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) // drains
}
