package cli

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const (
	qemuTimeout    = 10 * time.Second
	lowSpaceBytes  = 2 << 30   // a Debian bundle and a day's checkpoints
	fullSpaceBytes = 256 << 20 // a checkpoint of a busy VM may not fit
	lowShmBytes    = 1 << 30   // two VMs of 512 MiB
)

func checkQEMU(ctx context.Context) check {
	const name = "QEMU"
	binary := "qemu-system-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	path, err := exec.LookPath(binary)
	if err != nil {
		return check{name, resultFailed, "there is no " + binary + " in PATH", "no VM can be run", "install it: apt install qemu-system-x86, or your system's package"}
	}
	ctx, cancel := context.WithTimeout(ctx, qemuTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		return check{name, resultFailed, fmt.Sprintf("%s --version: %v", path, err), "no VM can be run", "install it anew"}
	}
	return check{Name: name, Result: resultOK, Found: first + " at " + path}
}

func checkSpace(home string) check {
	const name = "disk space"
	free, err := freeBytes(home)
	if err != nil {
		return check{name, resultWarning, err.Error(), "nobody knows how many checkpoints fit", "see that the home is on a disk of its own with room"}
	}
	found := fmt.Sprintf("%s free at %s", mib(free), home)
	switch {
	case free < fullSpaceBytes:
		return check{name, resultFailed, found, "the next checkpoint may not fit, and then neither do execs with --checkpoints", "free some, or move the home"}
	case free < lowSpaceBytes:
		return check{name, resultWarning, found, "a new bundle or a long session may not fit", "free some, or move the home"}
	}
	return check{Name: name, Result: resultOK, Found: found}
}

func checkSharedMemory() check {
	const name = "shared memory (/dev/shm)"
	if runtime.GOOS != "linux" {
		return check{Name: name, Result: resultOK, Found: "not used on this system"}
	}
	free, err := freeBytes("/dev/shm")
	if err != nil {
		return check{name, resultFailed, err.Error(), "guests' memory has no place", "mount a tmpfs at /dev/shm"}
	}
	if free < lowShmBytes {
		return check{name, resultWarning, mib(free) + " free", "a guest that touches more memory than that is killed", "mount -o remount,size=75% /dev/shm"}
	}
	return check{Name: name, Result: resultOK, Found: mib(free) + " free"}
}

func mib(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
