package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"flash/vmm/bundle"
)

// modules are what the outer machine needs: its devices, the host's files, and what the test is about.
var modules = []string{"virtio_pci", "9pnet_virtio", "9p", "kvm_amd"}

// outer is the machine that is to be run.
type outer struct {
	memMiB  int
	verbose bool
	command []string
}

// run boots the machine, waits for its end and gives the command's exit status.
func run(ctx context.Context, o outer) (int, error) {
	files, err := o.files(ctx)
	if err != nil {
		return 0, err
	}
	defer closeAll(files)
	var console, status bytes.Buffer
	sinks := []io.Writer{&console, os.Stdout, &status}
	if o.verbose {
		sinks[0] = io.MultiWriter(&console, os.Stderr)
	}
	var copying sync.WaitGroup
	for _, sink := range sinks {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		files = append(files, w)
		copying.Go(func() {
			defer r.Close()
			_, _ = io.Copy(sink, r) // ends with the last writer
		})
	}
	runtime.LockOSThread() // the machine dies with this thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", o.arguments()...)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	closeAll(files) // the machine has its own, and the end of those is the end of copying
	if err == nil {
		err = cmd.Wait()
	}
	copying.Wait()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("%s: the machine was ended: %w\n%s", strings.Join(o.command, " "), ctx.Err(), lastLines(console.String()))
	}
	if err != nil {
		return 0, fmt.Errorf("QEMU: %w\n%s", err, lastLines(console.String()))
	}
	var code int
	if _, err := fmt.Sscanf(status.String(), "exit %d", &code); err != nil {
		return 0, fmt.Errorf("the machine ended without a word on the command\n%s", lastLines(console.String()))
	}
	return code, nil
}

// files gives the kernel and the initrd.
func (o outer) files(ctx context.Context) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	work, err := job{Command: o.command, Dir: dir, Env: os.Environ()}.encode()
	if err != nil {
		return nil, err
	}
	self, err := staticSelf()
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "nested-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	boot, err := bundle.Config{WorkDir: scratch}.BootFiles(ctx, bundle.BootRequest{
		Modules: modules, Init: self, Files: map[string][]byte{jobFile: work},
	})
	if err != nil {
		return nil, err
	}
	for _, content := range [][]byte{boot.Kernel, boot.Initrd} {
		fd, err := unix.MemfdCreate("nested", unix.MFD_CLOEXEC)
		if err != nil {
			return files, fmt.Errorf("memory file: %w", err)
		}
		file := os.NewFile(uintptr(fd), "nested")
		files = append(files, file)
		if _, err := file.Write(content); err != nil {
			return files, fmt.Errorf("memory file: %w", err)
		}
	}
	return files, nil
}

// staticSelf gives this program, which becomes an init without a loader and libraries.
func staticSelf() ([]byte, error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	program, err := elf.NewFile(bytes.NewReader(self))
	if err != nil {
		return nil, err
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, errors.New("this program needs a loader and can't be an init: set CGO_ENABLED=0 for go run")
		}
	}
	return self, nil
}

// cpuModel has what KVM needs; not what only costs, like a fifth level of page tables for each of the two walks of an address.
const cpuModel = "max,la57=off,mpx=off,pku=off"

// kernelOptions: a processor that is emulated has no side channels to close, and one whose emulator is kept waiting isn't one
// with a broken clock, for which the kernel would fall back on a slow one.
const kernelOptions = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable nowatchdog"

func (o outer) arguments() []string {
	args := []string{
		"-M", "q35", "-accel", "tcg,thread=multi", "-cpu", cpuModel, "-smp", "2", "-m", fmt.Sprint(o.memMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", "/proc/self/fd/3", "-initrd", "/proc/self/fd/4", "-append", kernelOptions,
		"-virtfs", "local,path=/,mount_tag=" + shareTag + ",security_model=none,readonly=on,multidevs=remap",
	}
	for i := range 3 {
		args = append(args, "-chardev", fmt.Sprintf("file,id=serial%d,path=/proc/self/fd/%d", i, 5+i), "-serial", fmt.Sprintf("chardev:serial%d", i))
	}
	return args
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close() // the second time is harmless
	}
}

// lastLines is as much of the console as one reads.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
