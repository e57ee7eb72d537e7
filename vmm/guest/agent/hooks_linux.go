package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

const (
	hookLimit     = 20 * time.Second // for one hook
	hookTailBytes = 1 << 10          // of its output, told when it fails
)

// runHooks runs the executables of a folder in the order of their names. They run outside of the frozen workload, in a
// group of their own that is killed with whatever they leave behind when each is over.
func (a *agent) runHooks(ctx context.Context, dir string, r guest.Repair) error {
	if isEmpty(dir) {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the hooks: %w", err)
	}
	hooks, err := newGroupsAt(a.groups.root+".hooks", a.groups.watch)
	if err != nil {
		return err
	}
	vm := r.Hostname
	if vm == "" {
		vm = hostname()
	}
	env := []string{"PATH=" + defaultPath, "HOME=/root", "USER=root", "FLASH_GENERATION=" + r.Generation, "FLASH_VM=" + vm}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if err := a.runHook(ctx, hooks, path, env); err != nil {
			return fmt.Errorf("hook %s: %w", path, err)
		}
	}
	return nil
}

// isEmpty tells by plain system calls that there are no hooks, the usual case, as writeAtomically does and why.
func isEmpty(dir string) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err == unix.ENOENT
	}
	defer unix.Close(fd)
	buf := make([]byte, 1024)
	n, err := unix.ReadDirent(fd, buf)
	if err != nil {
		return false
	}
	_, count, _ := unix.ParseDirent(buf[:n], 1, nil)
	return count == 0
}

func (a *agent) runHook(ctx context.Context, hooks *groups, path string, env []string) error {
	const id = "hook"
	group, err := hooks.open(id)
	if err != nil {
		return err
	}
	defer unix.Close(group)
	defer hooks.kill(context.WithoutCancel(ctx), id)
	output, err := unix.MemfdCreate("hook", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(output)
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	_, ended, err := a.reaper.start(path, []string{path}, &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{uintptr(null), uintptr(output), uintptr(output)},
		Sys: &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: group},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	select {
	case status := <-ended:
		if status.Exited() && status.ExitStatus() == 0 {
			return nil
		}
		return fmt.Errorf("%s: %s", ending(status), tail(output))
	case <-ctx.Done():
		return fmt.Errorf("still running after %v: %s", hookLimit, tail(output))
	}
}

func ending(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by SIG" + signalName(s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// tail gives the last bytes of what has been written to fd.
func tail(fd int) string {
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil {
		return ""
	}
	buf := make([]byte, hookTailBytes)
	n, err := unix.Pread(fd, buf, max(0, s.Size-hookTailBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(buf[:n]))
}
