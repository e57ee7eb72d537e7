package qemu

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"flash/vmm"
)

// testCgroups gives a host's cgroup with whatever controllers there are, also with none.
func testCgroups(t testing.TB) *cgroups {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes control groups")
	}
	mount, err := cgroupMount()
	if err != nil {
		t.Skip(err)
	}
	name := fmt.Sprintf("flash-test-%d", os.Getpid())
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	c, reasons := openCgroupsAt(mount, name, log)
	if c == nil {
		t.Logf("%v", reasons)
		c = &cgroups{dir: filepath.Join(mount, name), log: log}
		if err := os.Mkdir(c.dir, 0o755); err != nil {
			t.Skip(err)
		}
	}
	t.Cleanup(func() {
		c.close()
		if _, err := os.Stat(c.dir); err == nil {
			t.Errorf("%s is left", c.dir)
		}
	})
	return c
}

func needLimits(t testing.TB, c *cgroups, want ...string) {
	t.Helper()
	for _, one := range want {
		if !slices.Contains(c.have, one) {
			if strings.Contains(os.Getenv("FLASH_REQUIRE"), "kvm") { // on our emulated machine there is everything
				t.Fatalf("no controller %s", one)
			}
			t.Skipf("no controller %s here", one)
		}
	}
}

func TestEachQEMUHasAControlGroupThatEndsWithIt(t *testing.T) {
	c := testCgroups(t)
	e := testEngine(t, Config{PoolSize: -1, Accel: "tcg"})
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.probed.groups = c
	e.mu.Unlock()
	s := shape{facts: e.probed.capabilities.Facts, vcpus: 2, memBytes: testMemBytes}
	one, err := e.spawn(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.spawn(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*instance{one, other} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", in.id.PID))
		if want := "0::" + strings.TrimPrefix(in.group.dir, filepath.Dir(c.dir)) + "\n"; err != nil || !strings.Contains(string(text), want) {
			t.Errorf("process %d is in %q, %v, want %q", in.id.PID, text, err, want)
		}
		for _, controller := range c.have {
			for _, limit := range limits(s)[controller] {
				if got, err := os.ReadFile(filepath.Join(in.group.dir, limit[0])); err != nil || strings.TrimSpace(string(got)) != limit[1] {
					t.Errorf("%s is %q, %v, want %s", limit[0], got, err, limit[1])
				}
			}
		}
	}
	name := filepath.Base(c.dir)
	if left := Leftovers(name, os.Getpid()); len(left) != 0 {
		t.Errorf("taken for leftovers: %v", left)
	}
	if left := Leftovers(name, 1); len(left) != 2 {
		t.Errorf("of another daemon's are left: %v", left)
	}
	one.close()
	other.kill()
	<-other.ended
	other.close()
	if left, _ := filepath.Glob(filepath.Join(c.dir, "q*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := e.spawner.start(program{binary: "/nowhere", group: must(c.make(s))}); err == nil {
		t.Error("no error")
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "q*")); len(left) != 0 {
		t.Errorf("a failed start left %v", left)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What a daemon that was killed has left is ended and removed by the next one of its name.
func TestControlGroupsLeftAreSwept(t *testing.T) {
	c := testCgroups(t)
	g, err := c.make(shape{vcpus: 1, memBytes: minMemBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer g.remove()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if err := writeFile(filepath.Join(g.dir, "cgroup.procs"), fmt.Sprint(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "cgroup.kill")); err != nil {
		t.Skip("this kernel can't kill a control group: ", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := c.sweep(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the process that was left lives on")
	}
	if _, err := os.Stat(g.dir); err == nil {
		t.Errorf("%s is left", g.dir)
	}
}

// A QEMU that takes more than it was to have ends, alone, and its end says why.
func TestAQEMUThatPassesItsLimitOfMemoryEndsAndSaysSo(t *testing.T) {
	c := testCgroups(t)
	needLimits(t, c, "memory")
	e := testEngine(t, Config{PoolSize: -1})
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.probed.groups = c
	e.mu.Unlock()
	g := boot(t, e, testSpec(t), vmm.Attach{})
	dir := g.Machine.(*machine).in.group.dir
	if err := writeFile(filepath.Join(dir, "memory.max"), "1M"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("it lives on")
	}
	if exit := g.Exit(); exit.Reason != reasonKilled || !strings.Contains(exit.Detail, "control group's limit of 1048576 bytes") {
		t.Errorf("%+v", exit)
	}
}

func TestLimitsFollowFromTheShape(t *testing.T) {
	s := shape{facts: vmm.Facts{Accel: "kvm"}, vcpus: 4, memBytes: 1 << 30}
	got := fmt.Sprint(limits(s))
	want := fmt.Sprintf("map[cpu:[[cpu.max 500000 100000]] memory:[[memory.max %d] [memory.oom.group 1]] pids:[[pids.max 148]]]", 1<<30+256<<20+16<<20)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.facts.Accel = "tcg"
	if more := allowance(s); more != 512<<20+16<<20 {
		t.Errorf("translated code isn't allowed for: %d", more)
	}
}

func TestControlGroupsAreFoundWhereTheyAreMounted(t *testing.T) {
	for text, want := range map[string]string{
		"35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n":                                               "/sys/fs/cgroup",
		"30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n": "/sys/fs/cgroup/unified",
		"30 23 0:26 / /a\\040b rw - cgroup2 x rw\n":                                                                                      "/a b",
		"30 23 0:26 / /proc rw - proc proc rw\n":                                                                                         "",
		"rubbish - cgroup2 \n":                                                                                                           "",
	} {
		if got := parseCgroupMount(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
