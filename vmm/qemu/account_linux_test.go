package qemu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"flash/vmm"
)

// statusOf reads the lines of /proc/PID/status that say what a process may.
func statusOf(t testing.TB, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		found[name] = strings.Join(strings.Fields(value), " ")
	}
	return found
}

// needOwnUser gives an engine that runs QEMU as users of its own.
func needOwnUser(t testing.TB, e *Engine) {
	t.Helper()
	c, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a QEMU a user of its own")
	}
	if !c.OwnUser {
		needVM(t, c.Reasons["own user"])
	}
}

const readingEnv = "FLASH_TEST_READS"

// TestQEMUHasTheLeastItNeeds looks at a machine that was booted and at one that was restored: at what the kernel says of
// their processes, and at what a process with the same credentials can reach.
func TestQEMUHasTheLeastItNeeds(t *testing.T) {
	if path := os.Getenv(readingEnv); path != "" {
		tryToRead(path)
		return
	}
	e := testEngine(t, Config{PoolSize: -1})
	needOwnUser(t, e)
	packs := filepath.Join(t.TempDir(), "packs") // as below FLASH_HOME: in a folder of mode 0700
	if err := os.MkdirAll(packs, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(packs, "secret")
	if err := os.WriteFile(secret, []byte("a page of somebody's memory"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(packs), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t)
	s := emptySnapshot(spec)
	s.disk = make(image, testDiskBlocks)
	root := shortDir(t)
	disk := overlay(t, s.disk)
	g := boot(t, e, spec, vmm.Attach{Dir: filepath.Join(root, "a"), Disks: []vmm.Disk{{Name: "root", Overlay: disk}}})
	s = g.checkpoint(s, disk)
	r := restore(t, e, s, vmm.Attach{Dir: filepath.Join(root, "b"), Disks: []vmm.Disk{{Name: "root", Overlay: overlay(t, s.disk)}}})
	r.resume()
	r.wants("hello", "count 2")

	var users []string
	for what, m := range map[string]vmm.Machine{"booted": g.Machine, "restored": r.Machine} {
		pid := m.Process().PID
		status := statusOf(t, pid)
		uid, _, _ := strings.Cut(status["Uid"], " ")
		users = append(users, uid)
		id, err := strconv.ParseUint(uid, 10, 32)
		if err != nil || id < 60706 {
			t.Fatalf("%s: user %q", what, status["Uid"])
		}
		four := strings.TrimSpace(strings.Repeat(uid+" ", 4))
		for name, want := range map[string]string{
			"Uid": four, "Gid": four, "NoNewPrivs": "1", "Seccomp": "2",
			"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		} {
			if status[name] != want {
				t.Errorf("%s: %s is %q, want %q", what, name, status[name], want)
			}
		}
		if groups := status["Groups"]; groups != "" && groups != kvmGroup(m.(*machine)) {
			t.Errorf("%s: groups %q", what, groups)
		}
		for _, dir := range []string{root, filepath.Join(root, "a"), filepath.Join(root, "b")} {
			if os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600); as(t, uint32(id), filepath.Join(dir, "probe")) == nil {
				t.Errorf("%s: it can read a file of mode 0600 in %s", what, dir)
			}
		}
		if err := as(t, uint32(id), secret); err == nil {
			t.Errorf("%s: its user can read %s", what, secret)
		}
		if err := as(t, uint32(id), fmt.Sprintf("/proc/%d/environ", os.Getpid())); err == nil {
			t.Errorf("%s: its user can read this process's environment", what)
		}
		for _, held := range heldFiles(t, pid) {
			switch {
			case strings.HasPrefix(held, "socket:"), strings.HasPrefix(held, "anon_inode:"), strings.HasPrefix(held, "pipe:"),
				strings.HasPrefix(held, "/memfd:memory-backend-memfd"), held == "/dev/null", held == "/dev/kvm",
				strings.HasPrefix(held, root), held == spec.Kernel, strings.HasPrefix(held, "/memfd:initrd"):
			default:
				t.Errorf("%s: it holds %s", what, held)
			}
		}
	}
	if users[0] == users[1] {
		t.Errorf("both run as user %s", users[0])
	}
	if err := as(t, 0, secret); err != nil {
		t.Errorf("the test proves nothing: root can't read it either: %v", err)
	}
}

const none = "0000000000000000"

func kvmGroup(m *machine) string {
	if m.in.user == nil || len(m.in.user.Groups) == 0 {
		return ""
	}
	return fmt.Sprint(m.in.user.Groups[0])
}

// heldFiles are what a process's descriptors stand for.
func heldFiles(t testing.TB, pid int) (list []string) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(paths) == 0 {
		t.Fatalf("process %d has %d descriptors, %v", pid, len(paths), err)
	}
	for _, path := range paths {
		if to, err := os.Readlink(path); err == nil {
			list = append(list, to)
		}
	}
	return list
}

// as reads a file in a process of a user.
func as(t testing.TB, id uint32, path string) error {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestQEMUHasTheLeastItNeeds$")
	cmd.Dir = "/"
	cmd.Env = []string{readingEnv + "=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != int(unix.EACCES) {
		t.Fatalf("reading %s as %d: %v: %s", path, id, err, out)
	}
	return err
}

// tryToRead ends this process with the errno of reading.
func tryToRead(path string) {
	_, err := os.ReadFile(path)
	if pathError, ok := err.(*os.PathError); ok {
		os.Exit(int(pathError.Err.(syscall.Errno)))
	}
	os.Exit(0)
}

func TestUsersAreWhollyMappedOrNotUsed(t *testing.T) {
	for _, c := range []struct {
		text         string
		first, count uint32
		want         bool
	}{
		{"         0          0 4294967295\n", 0x7000_0000, 0x0fff_ffff, true},
		{"0 100000 65536\n", 0x7000_0000, 0x0fff_ffff, false},
		{"0 100000 65536\n", 60706, 478, true},
		{"0 1000 1\n1 100000 60706\n", 60706, 478, false},
		{"", 60706, 478, false},
		{"rubbish\n", 60706, 478, false},
	} {
		if got := mapsAll(c.text, c.first, c.count); got != c.want {
			t.Errorf("%q has %d users from %d: %t", c.text, c.count, c.first, got)
		}
	}
}

func TestKVMIsOpenedByItsGroupOrNotAtAll(t *testing.T) {
	device := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o600: "alone", 0o660: "[7]", 0o666: "[]", 0o640: "alone"} {
		if err := os.Chown(device, -1, 7); err != nil {
			t.Skip(err)
		}
		if err := os.Chmod(device, mode); err != nil {
			t.Fatal(err)
		}
		groups, err := kvmGroups(device)
		if got := fmt.Sprint(groups, err); !strings.Contains(got, want) || (want == "alone") != (err != nil) {
			t.Errorf("mode %#o: %s, want %s", mode, got, want)
		}
	}
}
