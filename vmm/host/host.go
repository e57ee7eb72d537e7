package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/store"
	"flash/vmm"
)

// Config is what a host stands on. Store and Engine are closed by the caller, after Close.
type Config struct {
	Store   *store.Store
	Engine  vmm.Engine
	Home    string           // FLASH_HOME: boot files, consoles, scratch
	RunDir  string           // sockets; short, and this host's alone
	Version string           // of the program
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: none

	Remotes   Remotes   // nil: there are none
	Backoff   Backoff   // of VMs that are brought back
	MinMemMiB int       // the least a VM may have; 0: what a Linux guest needs
	Deadlines Deadlines // of the waits on guests and engines
}

// Host does every operation. Safe for concurrent use.
type Host struct {
	cfg       Config
	store     *store.Store
	engine    vmm.Engine
	now       func() time.Time
	log       *slog.Logger
	deadlines Deadlines
	answers   *answers
	runs      runs
	remotes   *remotes
	keeper    *keeper
	cuts      chan struct{} // a token for each open cut; capacity cutsAtOnce

	gcWanted chan struct{} // holds one token when a collection shouldn't wait for its time

	watchers sync.WaitGroup // one a running machine, and one a guest that is being abandoned

	mu       sync.Mutex // guards the rest; never held across I/O
	vms      map[string]*vm
	reserved map[string]bool // names of children on their way
	closed   bool            // no operation begins any more
	gone     bool            // and no guest comes up any more
}

var _ API = (*Host)(nil)

// New opens the host: it reads the VMs of the store and settles those that an earlier daemon left running.
func New(ctx context.Context, c Config) (*Host, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MinMemMiB == 0 {
		c.MinMemMiB = minMemMiB
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range []string{c.Home, filepath.Join(c.Home, "boot"), filepath.Join(c.Home, scratchName), filepath.Join(c.Home, "vms"), c.RunDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, Errorf(CodeInvalid, "choose another --home, or make the folder writable", "home folder: %w", err)
		}
	}
	if err := sweep(c.Home); err != nil {
		return nil, explain(err, c.Home, "", unknown)
	}
	h := &Host{
		cfg: c, store: c.Store, engine: c.Engine, now: c.Now, log: c.Log, deadlines: c.Deadlines.orDefaults(), answers: newAnswers(c.Now),
		cuts: make(chan struct{}, cutsAtOnce), keeper: newKeeper(c.Backoff), runs: runs{now: c.Now, known: map[string]*run{}}, vms: map[string]*vm{}, reserved: map[string]bool{},
		gcWanted: make(chan struct{}, 1),
	}
	var err error
	if h.remotes, err = loadRemotes(c.Home, c.Remotes); err != nil {
		return nil, err
	}
	records, err := h.store.VMs(ctx)
	if err != nil {
		return nil, h.explain(err, "")
	}
	for _, r := range records {
		v, err := openVM(r)
		if err != nil {
			return nil, err
		}
		h.vms[r.ID] = v
		h.settle(v)
		v.unlock()
	}
	for _, k := range h.remotes.all() {
		h.follow(k)
	}
	for _, v := range slices.Collect(maps.Values(h.vms)) { // the first may already be coming back
		h.keep(v)
	}
	return h, nil
}

// reasonStarting is that of a VM whose first guest hasn't come up yet.
const reasonStarting = "being started"

// reasonDaemon is that of a VM that was stopped because the daemon was.
const reasonDaemon = "the daemon was stopped"

// settle makes the record of a VM true that an earlier daemon left as running: its machine, should it still live, is
// ended, and the VM is crashed.
func (h *Host) settle(v *vm) {
	if v.state.State == StateStopped && v.state.Reason == reasonStarting {
		h.setState(v, status{State: StateCrashed, Reason: "the daemon ended while it was started for the first time"})
		return
	}
	if v.state.State != StateRunning && v.state.State != StatePaused {
		return
	}
	endProcess(v.state.Process)
	h.setState(v, status{State: StateCrashed, Reason: "the daemon ended without stopping it"})
}

// closeAtOnce bounds the VMs that are stopped side by side: one that doesn't answer must not use up the others' time.
const closeAtOnce = 4

// Close checkpoints and stops every running VM. What can't be checkpointed within ctx is stopped and goes on from its
// head; the errors say which. When it returns, nothing runs and nobody uses store and engine any more.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	vms := slices.Collect(maps.Values(h.vms))
	h.mu.Unlock()
	h.keeper.end()
	h.keeper.running.Wait()
	errs := make([]error, len(vms))
	var group errgroup.Group
	group.SetLimit(closeAtOnce)
	for i, v := range vms {
		group.Go(func() error {
			errs[i] = h.stopForShutdown(ctx, v)
			return nil
		})
	}
	group.Wait()
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	for _, v := range vms {
		h.discard(v, status{Reason: reasonDaemon + " while another operation ran", Kept: true})
		<-v.op // it has no guest now, so what still runs ends
		v.unlock()
	}
	h.watchers.Wait()
	for _, k := range h.remotes.all() {
		k.unfollow()
		errs = append(errs, k.shut())
	}
	return errors.Join(errs...)
}

// stopForShutdown stops a VM, its present saved if that can be.
func (h *Host) stopForShutdown(ctx context.Context, v *vm) error {
	unlock, err := h.lock(ctx, v, "shutdown")
	if isCode(err, CodeVMNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if h.running(v) == nil {
		return nil
	}
	err = h.stop(ctx, v, stopping{status: status{Reason: reasonDaemon, Kept: true, Saved: true}, label: "before the daemon stopped", purse: store.Overdraft})
	if err != nil {
		h.discard(v, status{Reason: reasonDaemon + ", and its present couldn't be saved", Kept: true})
	}
	return err
}

// Info says what this host is and can do.
func (h *Host) Info(ctx context.Context) (Info, error) {
	caps, err := h.engine.Probe(ctx)
	if err != nil {
		return Info{}, h.explain(err, "")
	}
	return Info{Version: h.cfg.Version, PID: os.Getpid(), Home: h.cfg.Home, Capabilities: caps, Usage: h.store.Usage()}, nil
}
