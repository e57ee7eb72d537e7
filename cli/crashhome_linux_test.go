package cli

import (
	"bytes"
	"context"
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

	"flash/vmm/host"
)

// program is the real flash, built once a run.
var program struct {
	once sync.Once
	path string
	err  error
}

func buildProgram() {
	dir, err := os.MkdirTemp("", "flash-crash-bin")
	if err != nil {
		program.err = err
		return
	}
	program.path = filepath.Join(dir, "flash")
	out, err := exec.Command("go", "build", "-o", program.path, "flash/cli/flash").CombinedOutput()
	if err != nil {
		program.err = errors.New("go build: " + err.Error() + ": " + string(out))
	}
}

// crashHome is a home and a daemon that is really a process.
type crashHome struct {
	t    *testing.T
	home string
	env  []string
}

// newCrashHome skips where there can be no guests; with FLASH_REQUIRE=vm that is a failure.
func newCrashHome(t *testing.T) *crashHome {
	t.Helper()
	_, err := exec.LookPath("qemu-system-x86_64")
	if os.Geteuid() != 0 || err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "vm") {
			t.Fatalf("real guests are required, and need root and QEMU: uid %d, %v", os.Geteuid(), err)
		}
		t.Skip("real guests need root and QEMU")
	}
	if program.once.Do(buildProgram); program.err != nil {
		t.Fatal(program.err)
	}
	home, err := os.MkdirTemp("", "fl") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &crashHome{t: t, home: home, env: append(os.Environ(), "FLASH_HOME="+home)}
	t.Cleanup(func() {
		if t.Failed() {
			c.tellLog()
		}
		c.killAll(slices.Values(c.processes()))
		os.RemoveAll(runDir(home))
		os.RemoveAll(home)
	})
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "flash", "packages") // fetched once, kept over runs
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cache, filepath.Join(home, "cache")); err != nil {
		t.Fatal(err)
	}
	return c
}

// runVM builds the bundle and runs a VM from it.
func (c *crashHome) runVM(id string) {
	c.t.Helper()
	c.must("bundle", "build", "busybox")
	c.must("run", "--bundle", "busybox", "--id", id, "--vcpus", "1", "--mem-mib", "256", "--checkpoints", "--detach")
}

func (c *crashHome) tellLog() {
	log, _ := os.ReadFile(logPath(c.home))
	c.t.Logf("the daemon's log ends with:\n%s", log[max(0, len(log)-4000):])
}

// result is how a command of the program ended.
type result struct {
	out, err string
	code     int
}

// running is a command of the program under way.
type running struct {
	c        *crashHome
	cmd      *exec.Cmd
	args     []string
	out, err bytes.Buffer
	spoke    chan struct{} // closed with the first output
	once     sync.Once
	cancel   context.CancelFunc
}

// Write takes its stdout.
func (r *running) Write(p []byte) (int, error) {
	r.once.Do(func() { close(r.spoke) })
	return r.out.Write(p)
}

// commandLimit is far above what any command here takes; one that hits it hangs.
const commandLimit = 90 * time.Second

func (c *crashHome) start(args ...string) *running {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	r := &running{c: c, cmd: exec.CommandContext(ctx, program.path, args...), args: args, spoke: make(chan struct{}), cancel: cancel}
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = c.env, r, &r.err
	r.cmd.WaitDelay = time.Second
	if err := r.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// wait waits until the command ends by itself.
func (r *running) wait() result {
	r.c.t.Helper()
	defer r.cancel()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.c.t.Fatalf("flash %q: %v", r.args, err)
	}
	res := result{r.out.String(), r.err.String(), r.cmd.ProcessState.ExitCode()}
	if res.code < 0 {
		r.c.t.Fatalf("flash %q hung: %v: %s%s", r.args, err, res.out, res.err)
	}
	return res
}

func (c *crashHome) run(args ...string) result {
	c.t.Helper()
	return c.start(args...).wait()
}

// must wants exit code 0 and gives stdout.
func (c *crashHome) must(args ...string) string {
	c.t.Helper()
	r := c.run(args...)
	if r.code != 0 {
		c.t.Fatalf("flash %q: exit code %d: %s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// ask decodes what a command prints with --json.
func ask[T any](c *crashHome, args ...string) T {
	c.t.Helper()
	return decode[T](c, c.must(append([]string{"--json"}, args...)...))
}

func decode[T any](c *crashHome, text string) T {
	c.t.Helper()
	var out T
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		c.t.Fatalf("%v in %q", err, text)
	}
	return out
}

func (c *crashHome) vm(id string) host.VM {
	c.t.Helper()
	return ask[[]host.VM](c, "ps", id)[0]
}

// process is one that belongs to the home.
type process struct {
	pid     int
	machine bool // a QEMU; else the daemon
}

// processes finds the home's daemon and machines.
func (c *crashHome) processes() []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	serve := []byte("\x00serve\x00--home\x00" + c.home + "\x00")
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		switch {
		case machineOf(cmdline, c.home, runDir(c.home)):
			found = append(found, process{pid, true})
		case bytes.Contains(cmdline, serve):
			found = append(found, process{pid, false})
		}
	}
	return found
}

// daemon gives the daemon's process id.
func (c *crashHome) daemon() int {
	c.t.Helper()
	for _, p := range c.processes() {
		if !p.machine {
			return p.pid
		}
	}
	c.t.Fatal("no daemon runs")
	return 0
}

// killAll kills in the order given, and waits until nothing of the home runs.
func (c *crashHome) killAll(order func(yield func(process) bool)) {
	c.t.Helper()
	for p := range order {
		syscall.Kill(p.pid, syscall.SIGKILL)
	}
	for deadline := time.Now().Add(10 * time.Second); len(c.processes()) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("after kill -9 of the daemon there still run %v", c.processes())
		}
		// A daemon that a client started at that very instant is one that is killed, too.
		for _, p := range c.processes() {
			if !p.machine {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// noLeftovers wants that nothing is left of what was killed: no process, no half-made file.
func (c *crashHome) noLeftovers() {
	c.t.Helper()
	found := false
	for _, check := range ask[[]check](c, "doctor") {
		if check.Result == resultFailed || check.Name == "VMs" && check.Result != resultOK {
			c.t.Errorf("doctor: %s: %s", check.Name, check.Found)
		}
		if check.Name == "leftovers" {
			found = true
			if check.Result != resultOK {
				c.t.Errorf("doctor: leftovers: %s", check.Found)
			}
		}
	}
	if !found {
		c.t.Error("doctor says nothing of leftovers")
	}
	for _, pattern := range []string{"scratch/*", "boot/new-*", ".s*", "packs/*.tmp", "index/*.tmp"} {
		left, err := filepath.Glob(filepath.Join(c.home, pattern))
		if err != nil || len(left) > 0 {
			c.t.Errorf("left of what was killed: %v %v", left, err)
		}
	}
}
