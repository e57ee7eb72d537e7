package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// agent is the guest.Handler made of processes and control groups.
type agent struct {
	groups    *groups
	freezer   *freezer
	reaper    *reaper
	accounts  *accounts
	random    generator
	null      int // /dev/null, open for reading
	self      account
	addresses int        // a socket, see setMAC
	boot      sync.Once  // the first session's seed
	repairs   sync.Mutex // one at a time
	isInit    bool

	collector  collector
	chores     chores
	generation *keptFile // guarded by freezer.mu
}

var _ guest.Handler = (*agent)(nil)

func newAgent() (*agent, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	g, err := newGroups(w)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	a, err := newAgentIn(g, os.Getpid() == 1)
	if err != nil {
		return nil, err
	}
	if a.isInit {
		a.obeySignals()
	}
	return a, nil
}

func newAgentIn(g *groups, isInit bool) (*agent, error) {
	a := &agent{groups: g, isInit: isInit, accounts: newAccounts("/etc/passwd", "/etc/group"), generation: newKeptFile(generationFile)}
	var err error
	if a.random, err = openGenerator(); err != nil {
		return nil, err
	}
	if a.null, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	a.addresses = openAddresses()
	if a.self, err = ownAccount(); err != nil {
		return nil, err
	}
	a.freezer = &freezer{groups: g, foresee: a.foresee, file: newKeptFile(filepath.Join(g.root, "cgroup.freeze"))}
	a.reaper = newReaper(isInit)
	g.makeSpare()
	return a, nil
}

// obeySignals does what the guest's own poweroff and reboot commands ask process 1 for.
func (a *agent) obeySignals() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM)
	go func() {
		switch <-asked {
		case unix.SIGTERM:
			a.powerOff(unix.LINUX_REBOOT_CMD_RESTART)
		default:
			a.powerOff(unix.LINUX_REBOOT_CMD_POWER_OFF)
		}
	}()
}

// Session feeds the kernel's generator when the machine has just booted: without RDRAND it would stay unseeded for many
// seconds. Later lives are reseeded by Repair, which can fail; this can't do harm.
func (a *agent) Session(seed []byte) {
	a.freezer.heard()
	a.boot.Do(func() {
		if err := a.random.reseed(seed); err != nil {
			say("seed of the boot: %v", err)
		}
	})
}

func (a *agent) Freeze(ctx context.Context, limit time.Duration) error {
	a.chores.now()
	return a.freezer.freeze(ctx, limit)
}

func (a *agent) Thaw(ctx context.Context) error { return a.freezer.thaw(ctx) }

// Kill kills what an exec left running that is too old to be remembered.
func (a *agent) Kill(ctx context.Context, id string) error {
	if !a.groups.exists(id) {
		return &guest.AgentError{Code: guest.CodeNoExec, Message: fmt.Sprintf("the guest knows no exec %q", id)}
	}
	return a.groups.kill(ctx, id)
}

func (a *agent) SyncFS(context.Context) error {
	unix.Sync()
	return nil
}

// Shutdown flushes now, so that what can take long happens before the answer.
func (a *agent) Shutdown(context.Context) (func(), error) {
	unix.Sync()
	return func() { a.powerOff(unix.LINUX_REBOOT_CMD_POWER_OFF) }, nil
}

const (
	politeLimit = 3 * time.Second  // between SIGTERM and SIGKILL
	initLimit   = 30 * time.Second // for another init to shut the machine down
)

// powerOff ends the machine. It doesn't return.
func (a *agent) powerOff(how int) {
	a.freezer.thaw(context.Background()) // else SIGTERM is of no use
	if !a.isInit {
		a.askInit(how)
	} else {
		unix.Kill(-1, unix.SIGTERM)
		a.waitAlone(politeLimit)
		unix.Kill(-1, unix.SIGKILL)
		a.waitAlone(politeLimit)
	}
	unix.Sync()
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		say("make the root file system read-only: %v", err)
	}
	if err := unix.Reboot(how); err != nil {
		say("power off: %v", err)
	}
	select {}
}

// askInit lets the init in charge do it, as its own command does.
func (a *agent) askInit(how int) {
	name := "poweroff"
	if how == unix.LINUX_REBOOT_CMD_RESTART {
		name = "reboot"
	}
	path, err := lookPath(name, "/", defaultPath)
	if err != nil {
		return
	}
	if _, _, err := a.reaper.start(path, []string{name}, &syscall.ProcAttr{Dir: "/", Env: []string{"PATH=" + defaultPath}}); err == nil {
		time.Sleep(initLimit) // it kills us before that
	}
}

// waitAlone waits until process 1 is the only one that isn't the kernel's.
func (a *agent) waitAlone(limit time.Duration) {
	for deadline := time.Now().Add(limit); othersLive() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// othersLive looks for another process that has a program: the kernel's own threads and the dead have none.
func othersLive() bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 1 {
			if _, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil {
				return true
			}
		}
	}
	return false
}
