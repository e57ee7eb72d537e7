package qemu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Where root has control groups of version 2, each QEMU is started inside one of its own, whose limits follow from what the
// guest was given. A QEMU that was broken into, or that leaks, then takes no more of the host than its VM was to have.
//
//	MOUNT/NAME        the host's; NAME is Config.Cgroup
//	MOUNT/NAME/q1 …   one a QEMU, made before it and removed when it was reaped
//
//	memory.max        the guest's memory and what QEMU needs beside it (allowance). The pages that restored guests share are
//	                  written by us and count as ours; of those a guest counts its own copies, never more than its memory.
//	memory.oom.group  1: whoever passes the limit ends whole
//	pids.max          CPUs, and what QEMU makes for disks and network
//	cpu.max           a core for each CPU, and one for QEMU's own thread
//
// controllers are those limits' controllers, by the name that stands in a Capabilities' Reasons.
var controllers = []string{"memory", "pids", "cpu"}

// limits are the files of one QEMU's cgroup and what is written to them, by controller.
func limits(s shape) map[string][][2]string {
	const period = 100_000 // µs, the kernel's default
	return map[string][][2]string{
		"memory": {{"memory.max", fmt.Sprint(s.memBytes + allowance(s))}, {"memory.oom.group", "1"}},
		"pids":   {{"pids.max", fmt.Sprint(s.vcpus + threadAllowance)}},
		"cpu":    {{"cpu.max", fmt.Sprintf("%d %d", (s.vcpus+1)*period, period)}},
	}
}

// threadAllowance is QEMU's own: 64 for each pool of I/O workers it may have, and its main, RCU and signal threads.
const threadAllowance = 2*64 + 16

// allowance is what a QEMU may take beside its guest's memory: 256 MiB for itself (seen: 60 MiB), as much again for
// translated code (tb-size in arguments), a 64th of the guest's memory for its page tables, which take a 512th twice over.
func allowance(s shape) uint64 {
	bytes := uint64(256<<20) + s.memBytes/64
	if s.facts.Accel == "tcg" {
		bytes += 256 << 20
	}
	return bytes
}

// cgroups makes them. nil: there are none here.
type cgroups struct {
	dir  string
	have []string // controllers
	log  *slog.Logger
	next atomic.Uint64
}

// openCgroups makes the host's own cgroup, ends what an earlier process of this name has left in it, and says what is
// missing. Precondition: the name is used by no other living process.
func openCgroups(name string, log *slog.Logger) (_ *cgroups, reasons map[string]string) {
	if name == "" || os.Geteuid() != 0 {
		return nil, nil
	}
	mount, err := cgroupMount()
	if err != nil {
		return nil, map[string]string{"limits": err.Error()}
	}
	return openCgroupsAt(mount, name, log)
}

func openCgroupsAt(mount, name string, log *slog.Logger) (_ *cgroups, reasons map[string]string) {
	reasons = map[string]string{}
	offered, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil {
		return nil, map[string]string{"limits": err.Error()}
	}
	c := &cgroups{dir: filepath.Join(mount, name), log: log}
	err = os.Mkdir(c.dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		err = c.sweep()
	}
	if err != nil {
		return nil, map[string]string{"limits": err.Error()}
	}
	for _, one := range controllers {
		if !strings.Contains(" "+strings.TrimSpace(string(offered))+" ", " "+one+" ") {
			reasons[one+" limit"] = fmt.Sprintf("the control groups at %s have no controller %q; cgroup v1 may have it", mount, one)
			continue
		}
		for _, dir := range []string{mount, c.dir} { // a controller must be let down step by step
			if err = writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+one); err != nil {
				break
			}
		}
		if err != nil {
			reasons[one+" limit"] = err.Error()
			continue
		}
		c.have = append(c.have, one)
	}
	if len(c.have) == 0 {
		c.close()
		return nil, reasons
	}
	return c, reasons
}

// names are the controllers there are.
func (c *cgroups) names() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.have)
}

// try starts a program in a cgroup: that needs Linux 5.7, and rights that nothing else tells of.
func (c *cgroups) try(ctx context.Context, binary string, s shape) error {
	g, err := c.make(s)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	g.place(cmd.SysProcAttr)
	err = cmd.Run()
	g.remove()
	return err
}

// make makes the cgroup of a QEMU of that shape; nil where there are none.
func (c *cgroups) make(s shape) (_ *cgroup, err error) {
	if c == nil {
		return nil, nil
	}
	g := &cgroup{dir: filepath.Join(c.dir, "q"+strconv.FormatUint(c.next.Add(1), 10)), log: c.log}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	defer func() {
		if err != nil {
			g.remove()
		}
	}()
	all := limits(s)
	for _, one := range c.have {
		for _, limit := range all[one] {
			if err := writeFile(filepath.Join(g.dir, limit[0]), limit[1]); err != nil {
				return nil, fmt.Errorf("limits: %w", err)
			}
		}
	}
	g.handle, err = os.Open(g.dir)
	return g, err
}

// sweep ends and removes what is left in the host's cgroup.
func (c *cgroups) sweep() error {
	left, err := filepath.Glob(filepath.Join(c.dir, "q*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range left {
		c.log.Warn("a control group was left", "dir", dir)
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// close removes the host's cgroup. Precondition: no QEMU is left.
func (c *cgroups) close() {
	if c == nil {
		return
	}
	if err := os.Remove(c.dir); err != nil {
		c.log.Warn("the host's control group is left", "cause", err)
	}
}

// cgroup is one QEMU's.
type cgroup struct {
	dir    string
	handle *os.File
	log    *slog.Logger
	once   sync.Once
	passed string // the limit of memory it ended for; "": it didn't. Set by remove.
}

// place starts a process inside. nil: where we are.
func (g *cgroup) place(attr *syscall.SysProcAttr) {
	if g != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(g.handle.Fd())
	}
}

// remove removes it, with what may be left inside; again is harmless. Whether it ended for want of memory is known then.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		if g.handle != nil {
			g.handle.Close()
		}
		if events, err := os.ReadFile(filepath.Join(g.dir, "memory.events")); err == nil && countOf(string(events), "oom_kill") > 0 {
			limit, _ := os.ReadFile(filepath.Join(g.dir, "memory.max"))
			g.passed = strings.TrimSpace(string(limit))
		}
		if err := removeCgroup(g.dir); err != nil {
			g.log.Warn("a control group is left", "cause", err)
		}
	})
}

// limitPassed tells the limit of memory that it was ended for; "": it wasn't. Precondition: it was removed.
func (g *cgroup) limitPassed() string {
	if g == nil {
		return ""
	}
	return g.passed
}

// countOf reads a line "name count".
func countOf(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			n, _ := strconv.ParseUint(value, 10, 64)
			return n
		}
	}
	return 0
}

// removeLimit bounds the wait for the last process of a cgroup to be gone from it.
const removeLimit = 2 * time.Second

// removeCgroup ends whatever runs in a cgroup, which has none below it, and removes it.
func removeCgroup(dir string) error {
	for deadline, wait := time.Now().Add(removeLimit), 100*time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := os.Remove(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
		// Linux 5.14; before that a process that is left ends with whoever started it.
		_ = writeFile(filepath.Join(dir, "cgroup.kill"), "1")
		time.Sleep(wait)
	}
}

// writeFile writes to a file of the kernel's, which is there already.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
