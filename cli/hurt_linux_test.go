package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flash/vmm/host"
)

// What happens to machines, on real guests. One VM is booted; what is hurt is a fork of it.

// herd boots the VM the tests of this file fork, once.
var herd sync.Once

func hurtOne(t *testing.T, id string) (*realFlash, *realVM) {
	t.Helper()
	f := needGuests(t)
	herd.Do(func() {
		f.must(t, "run", "--bundle", "busybox", "--id", "base", "--mem-mib", "256", "--detach")
		f.must(t, "exec", "base", "--", "sh", "-c", "echo kept > /kept; sync")
		f.must(t, "checkpoint", "base")
	})
	f.must(t, "fork", "base", "--from", "1", "--id", id)
	v := &realVM{t, f, id}
	t.Cleanup(func() {
		pids := v.machines()
		f.must(t, "rm", "--force", id)
		f.expectNothingLeft(t, pids)
	})
	return f, v
}

// realVM is one VM of a test.
type realVM struct {
	t  *testing.T
	f  *realFlash
	id string
}

func (v *realVM) ps() host.VM {
	v.t.Helper()
	var all []host.VM
	if err := json.Unmarshal([]byte(v.f.must(v.t, "ps", "--json", v.id)), &all); err != nil || len(all) != 1 {
		v.t.Fatalf("ps %s: %v, %v", v.id, all, err)
	}
	return all[0]
}

// machines gives the VM's process, if it has one.
func (v *realVM) machines() []int {
	if pid := v.ps().PID; pid > 0 {
		return []int{pid}
	}
	return nil
}

// expectNothingLeft wants ended processes, and no folder of a machine without a VM.
func (f *realFlash) expectNothingLeft(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if machineOf("/proc/"+strconv.Itoa(pid), f.home) {
			t.Errorf("process %d is left", pid)
		}
	}
	var checks []check
	if err := json.Unmarshal([]byte(f.try("doctor", "--json").stdout), &checks); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(checks, func(c check) bool { return c.Name == "leftovers" && c.Result == resultOK }) {
		t.Errorf("doctor finds leftovers: %v", checks)
	}
	running := 0
	var all []host.VM
	if err := json.Unmarshal([]byte(f.must(t, "ps", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	for _, vm := range all {
		if vm.State == "running" {
			running++
		}
	}
	for what, pattern := range map[string]string{"machine folders": filepath.Join(runDir(f.home), "*"), "scratch files": filepath.Join(f.home, "scratch", "*")} {
		if found, _ := filepath.Glob(pattern); len(found) > running {
			t.Errorf("%d VMs run, with %d %s: %v", running, len(found), what, found)
		}
	}
}

// refused wants a failure with an exit code, one line and a hint, each with a text.
func refused(t *testing.T, r result, code int, message, hint string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	if r.code != code || len(lines) != 2 || !strings.HasPrefix(lines[0], "flash: ") || !strings.Contains(lines[0], message) ||
		!strings.HasPrefix(lines[1], "hint: ") || !strings.Contains(lines[1], hint) {
		t.Errorf("%s\nwant exit code %d, one line with %q and a hint with %q", r, code, message, hint)
	}
}

func TestKilledMachineIsSeenAtOnceAndComesBack(t *testing.T) {
	f, v := hurtOne(t, "killed")
	f.must(t, "exec", v.id, "--", "sh", "-c", "echo more > /more")
	f.must(t, "checkpoint", v.id)
	if err := syscall.Kill(v.ps().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Second); v.ps().State != "crashed"; {
		if time.Now().After(deadline) {
			t.Fatalf("a second after its death it is %s", v.ps().State)
		}
	}
	refused(t, f.try("exec", v.id, "--", "true"), 125, "killed", "flash start "+v.id)
	f.must(t, "start", v.id)
	if out := f.must(t, "exec", v.id, "--", "cat", "/kept", "/more"); out != "kept\nmore\n" {
		t.Errorf("it came back with %q", out)
	}
}

func TestGuestPanicIsToldInTheKernelsWords(t *testing.T) {
	f, v := hurtOne(t, "panicked")
	refused(t, f.try("exec", v.id, "--", "sh", "-c", "echo c > /proc/sysrq-trigger"), 1, "Kernel panic - not syncing: sysrq triggered crash", "flash start "+v.id)
	if vm := v.ps(); vm.State != "crashed" || !strings.HasPrefix(vm.Reason, "guest panic: ") || !strings.Contains(vm.Reason, "Kernel panic - not syncing") {
		t.Errorf("it is %s: %q", vm.State, vm.Reason)
	}
	f.must(t, "start", v.id)
	if out := f.must(t, "exec", v.id, "--", "cat", "/kept"); out != "kept\n" {
		t.Errorf("it came back with %q", out)
	}
}

// A machine that stands still must cost nobody more than the deadlines, and can be ended.
func TestHungMachineIsToldInTimeAndCanBeEnded(t *testing.T) {
	f, v := hurtOne(t, "hung")
	hang := func() {
		if err := syscall.Kill(v.ps().PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	hang()
	var side sync.WaitGroup
	side.Go(func() {
		refused(t, f.try("exec", v.id, "--", "true"), 1, "hasn't answered", "flash stop --discard "+v.id)
	})
	side.Go(func() {
		refused(t, f.try("checkpoint", v.id), 1, "no answer from the guest", "flash stop --discard "+v.id)
	})
	side.Wait()
	f.must(t, "stop", "--discard", v.id)
	f.must(t, "start", v.id)
	if out := f.must(t, "exec", v.id, "--", "cat", "/kept"); out != "kept\n" {
		t.Errorf("it came back with %q", out)
	}
	hang() // and is removed so
}

// The damage is in what a checkpoint of the VM wrote. Rewinding to it is refused before the VM that runs is touched; with
// the bytes put right it works.
func TestCorruptPackIsRefusedBeforeTheVMIsTouched(t *testing.T) {
	f := needGuests(t)
	f.must(t, "run", "--bundle", "busybox", "--id", "damaged", "--mem-mib", "256", "--detach")
	v := &realVM{t, f, "damaged"}
	defer f.must(t, "rm", "--force", v.id)
	f.must(t, "exec", v.id, "--", "sh", "-c", "echo first > /text")
	before := packSizes(t, f)
	f.must(t, "checkpoint", v.id)
	f.must(t, "exec", v.id, "--", "sh", "-c", "echo second > /text")
	pid := v.ps().PID
	mend := flipPacks(t, f, before)
	refused(t, f.try("rewind", v.id, "1"), 1, " in pack ", "rewind to another checkpoint")
	r := f.try("rewind", v.id, "1", "--json")
	if r.code != 1 || !strings.Contains(r.stdout, `"store_corrupt"`) || !strings.Contains(r.stdout, "at offset ") {
		t.Errorf("rewind: %s", r)
	}
	refused(t, f.try("fork", v.id, "--from", "1"), 1, " in pack ", "rewind to another checkpoint")
	if vm := v.ps(); vm.PID != pid || vm.State != "running" {
		t.Errorf("it was process %d and is %d, %s", pid, vm.PID, vm.State)
	}
	if out := f.must(t, "exec", v.id, "--", "cat", "/text"); out != "second\n" {
		t.Errorf("it has %q", out)
	}
	mend()
	f.must(t, "rewind", v.id, "1")
	if out := f.must(t, "exec", v.id, "--", "cat", "/text"); out != "first\n" {
		t.Errorf("rewound, it has %q", out)
	}
}

func packSizes(t *testing.T, f *realFlash) map[string]int64 {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(f.home, "packs", "*"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("packs: %v, %v", packs, err)
	}
	sizes := map[string]int64{}
	for _, path := range packs {
		if info, err := os.Stat(path); err == nil {
			sizes[path] = info.Size()
		}
	}
	return sizes
}

// flipPacks flips a byte in every 512 that were added to packs since, and gives what undoes it.
func flipPacks(t *testing.T, f *realFlash, before map[string]int64) (mend func()) {
	t.Helper()
	flip := func() {
		for path, size := range packSizes(t, f) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			for at := before[path] + 256; at < size; at += 512 {
				_, err1 := file.ReadAt(b, at)
				b[0] ^= 0xff
				_, err2 := file.WriteAt(b, at)
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
			}
			file.Close()
		}
	}
	flip()
	return flip
}

// A disk that is full, by checkpoints and then by the guest itself, costs nothing but time.
func TestFullDiskLosesNothing(t *testing.T) {
	shared := needGuests(t)
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	size := func(flags uintptr, mib string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", flags, "size="+mib+"m"); err != nil {
			t.Fatalf("a small tmpfs: %v", err)
		}
	}
	size(0, "150")
	defer unix.Unmount(dir, unix.MNT_DETACH)
	f := &realFlash{root: shared.root, home: filepath.Join(dir, "home")}
	if err := errors.Join(os.Mkdir(f.home, 0o700), keepPackages(f.home)); err != nil {
		t.Fatal(err)
	}
	defer f.try("serve", "--stop")
	f.must(t, "bundle", "build", "busybox")
	f.must(t, "run", "--bundle", "busybox", "--id", "a", "--mem-mib", "256", "--checkpoints", "--detach")
	f.must(t, "exec", "a", "--", "sh", "-c", "echo one > /n; echo kept > /dev/shm/in-memory")

	grow := []string{"exec", "a", "--", "sh", "-c", "dd if=/dev/urandom of=/dev/shm/fill bs=1M count=16 2>/dev/null; echo more >> /n"}
	r := f.try(grow...)
	for n := 0; r.code == 0 && n < 20; n++ {
		r = f.try(grow...)
	}
	refused(t, r, 125, "no space left", "free space on the disk of "+f.home)
	want := f.must(t, "exec", "--no-checkpoint", "a", "--", "cat", "/n", "/dev/shm/in-memory")
	taken := f.must(t, "history", "a", "--json")

	// The guest takes the rest: its disk grows until it stands still.
	var written result
	var writing sync.WaitGroup
	writing.Go(func() {
		written = f.try("exec", "--no-checkpoint", "a", "--", "sh", "-c", "dd if=/dev/urandom of=/big bs=1M count=100 conv=fsync 2>/dev/null; md5sum /big")
	})
	// Room that no request of the guest fits into; QEMU merges some into larger ones, so a guest that has taken nothing for a
	// while stands still with more.
	const crumbs, mergedCrumbs, still = 1 << 20, 32 << 20, 60
	last, unchanged := uint64(0), 0
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(50 * time.Millisecond) { // nothing tells when a disk is full
		free, err := freeBytes(dir)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the guest doesn't fill the disk: %d bytes are free, %v", free, err)
		}
		if unchanged++; free != last {
			last, unchanged = free, 0
		}
		if free < crumbs || free < mergedCrumbs && unchanged >= still {
			break
		}
	}
	refused(t, f.try("checkpoint", "a"), 1, "", "free space on the disk of "+f.home)
	if vm := (&realVM{t, f, "a"}).ps(); vm.State != "running" {
		t.Errorf("on a full disk it is %s: %s", vm.State, vm.Reason)
	}

	size(unix.MS_REMOUNT, "600")
	writing.Wait()
	if written.code != 0 {
		t.Errorf("what wrote to the full disk: %s", written)
	}
	f.must(t, "checkpoint", "a", "--label", "with room again")
	sum := f.must(t, "exec", "--no-checkpoint", "a", "--", "sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches; md5sum /big")
	if written.stdout != sum {
		t.Errorf("the guest wrote %q and reads %q", written.stdout, sum)
	}
	var before, after []host.Checkpoint
	if err := errors.Join(json.Unmarshal([]byte(taken), &before), json.Unmarshal([]byte(f.must(t, "history", "a", "--json")), &after)); err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before)+1 {
		t.Errorf("there were %d checkpoints and are %d", len(before), len(after))
	}
	f.must(t, "rewind", "a", strconv.Itoa(before[1].Number))
	if out := f.must(t, "exec", "--no-checkpoint", "a", "--", "cat", "/n", "/dev/shm/in-memory"); out != "one\nkept\n" {
		t.Errorf("rewound, it has %q", out)
	}
	f.must(t, "rewind", "a", strconv.Itoa(after[len(after)-1].Number))
	if out := f.must(t, "exec", "--no-checkpoint", "a", "--", "cat", "/n", "/dev/shm/in-memory"); out != want {
		t.Errorf("rewound to the newest, it has %q, want %q", out, want)
	}
	f.must(t, "rm", "--force", "a")
	f.expectNothingLeft(t, nil)
}

// Without root there is no userfaultfd; all works, and doctor says what it costs.
func TestWithoutPrivilegeAllWorksAndDoctorSaysWhatItCosts(t *testing.T) {
	shared := needGuests(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		without(t, "it needs setpriv")
	}
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f := &realFlash{root: shared.root, home: filepath.Join(dir, "h")}
	cache := filepath.Join(f.home, "cache")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(f.home, 0o700), os.Mkdir(filepath.Join(dir, "run"), 0o700), keepPackages(f.home)); err != nil {
		t.Fatal(err)
	}
	f.must(t, "bundle", "build", "busybox") // which only root can
	f.must(t, "serve", "--stop")
	if err := os.Remove(cache); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"cp", filepath.Join(f.root, "bin", "flash"), dir}, {"chown", "-R", "nobody", dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	f.env = []string{"XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "HOME=" + dir}
	f.as = []string{"setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", filepath.Join(dir, "flash")}
	defer f.try("serve", "--stop")

	refused(t, f.try("bundle", "build", "busybox", "--name", "another"), 1, "only be made by root", "")
	f.must(t, "run", "--bundle", "busybox", "--id", "a", "--mem-mib", "256", "--checkpoints", "--detach")
	f.must(t, "exec", "a", "--", "sh", "-c", "echo kept > /text")
	f.must(t, "exec", "a", "--", "rm", "/text")
	f.must(t, "rewind", "a", "2")
	f.must(t, "fork", "a", "--from", "2")
	for _, id := range []string{"a", "a-fork-1"} {
		if out := f.must(t, "exec", id, "--", "cat", "/text"); out != "kept\n" {
			t.Errorf("%s has %q", id, out)
		}
	}
	doctor := f.try("doctor")
	for _, want := range []string{"! lazy memory (userfaultfd): not there: ", "→ rewind, fork and resume first read the whole memory", "hint: Linux 5.7 or newer, and root"} {
		if doctor.code != 0 || !strings.Contains(doctor.stdout, want) {
			t.Errorf("doctor doesn't say %q: %s", want, doctor)
		}
	}
	f.must(t, "rm", "--force", "a", "a-fork-1")
	f.must(t, "serve", "--stop")
	if left, _ := filepath.Glob(filepath.Join(dir, "run", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWithoutQEMUOneLineSaysWhatToInstall(t *testing.T) {
	f := &realFlash{root: needGuests(t).root, home: t.TempDir(), env: []string{"PATH=" + t.TempDir()}}
	refused(t, f.try("ps"), 1, "there is no qemu-system-x86_64", "apt-get install qemu-system-x86")
	doctor := f.try("doctor")
	if doctor.code != 1 || !strings.Contains(doctor.stdout, "✗ QEMU: there is no qemu-system-x86_64 in PATH") || !strings.Contains(doctor.stdout, "hint: install it") {
		t.Errorf("doctor: %s", doctor)
	}
	if _, err := os.Stat(runDir(f.home)); err == nil {
		t.Error("its sockets' folder is left")
	}
}

func TestWithoutPackagesOneLineSaysWhatToDo(t *testing.T) {
	shared := needGuests(t)
	home, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	bin := t.TempDir()
	for _, program := range []string{"apt-get", "apt-cache"} {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho 'E: Could not resolve deb.debian.org' >&2\nexit 100\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := &realFlash{root: shared.root, home: home, env: []string{"PATH=" + bin + ":" + os.Getenv("PATH")}}
	defer f.try("serve", "--stop")
	refused(t, f.try("bundle", "build", "busybox"), 1, "Could not resolve", filepath.Join(home, "cache"))
	if out := f.must(t, "bundle", "ls", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("a bundle is there: %s", out)
	}
	if left, _ := filepath.Glob(filepath.Join(home, "scratch", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
