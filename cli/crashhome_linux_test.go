package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"flash/vmm/host"
)

// crashHome is a home and a daemon that is really a process.
type crashHome struct {
	t       *testing.T
	program string
	home    string
	env     []string
}

// newCrashHome gives a test a home of its own: what it does to it is nothing for the shared one.
func newCrashHome(t *testing.T) *crashHome {
	t.Helper()
	flash := needGuests(t)
	home, err := os.MkdirTemp("", "fl") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := &crashHome{t: t, program: filepath.Join(flash.root, "bin", "flash"), home: home, env: append(os.Environ(), "FLASH_HOME="+home)}
	t.Cleanup(func() {
		if t.Failed() {
			c.tellLog()
		}
		c.killAll(slices.Values(c.processes()))
		os.RemoveAll(runDir(home))
		os.RemoveAll(home)
	})
	if err := keepPackages(home); err != nil {
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

// running is a command of the program under way.
type running struct {
	c        *crashHome
	cmd      *exec.Cmd
	args     []string
	out, err bytes.Buffer
	spoke    chan struct{} // closed with the first output
	once     sync.Once
	began    time.Time
	cancel   context.CancelFunc
}

// Write takes its stdout.
func (r *running) Write(p []byte) (int, error) {
	r.once.Do(func() { close(r.spoke) })
	return r.out.Write(p)
}

func (c *crashHome) start(args ...string) *running {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	r := &running{c: c, cmd: exec.CommandContext(ctx, c.program, args...), args: args, began: time.Now(), spoke: make(chan struct{}), cancel: cancel}
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
	res := result{stdout: r.out.String(), stderr: r.err.String(), code: r.cmd.ProcessState.ExitCode(), took: time.Since(r.began)}
	if res.code < 0 {
		r.c.t.Fatalf("flash %q hung: %v: %s", r.args, err, res)
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
		c.t.Fatalf("flash %q: %s", args, r)
	}
	return r.stdout
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

// processes finds the home's daemon and machines.
func (c *crashHome) processes() []process { return processesOf(c.home) }

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

// builders finds processes that work in the home's scratch folder.
func (c *crashHome) builders() (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && bytes.Contains(cmdline, []byte(filepath.Join(c.home, "scratch")+"/")) {
			found = append(found, string(cmdline))
		}
	}
	return found
}

// killAll kills in the order given, and waits until nothing of the home runs.
func (c *crashHome) killAll(order iter.Seq[process]) {
	c.t.Helper()
	if err := killProcesses(c.home, slices.Collect(order)); err != nil {
		c.t.Fatal(err)
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
	for _, pattern := range halfMade {
		left, err := filepath.Glob(filepath.Join(c.home, pattern))
		if err != nil || len(left) > 0 {
			c.t.Errorf("left of what was killed: %v %v", left, err)
		}
	}
}
