package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

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
}

// Host does every operation. Safe for concurrent use.
type Host struct {
	cfg     Config
	store   *store.Store
	engine  vmm.Engine
	now     func() time.Time
	log     *slog.Logger
	answers *answers

	watchers sync.WaitGroup // one a running machine

	mu     sync.Mutex // guards the rest; never held across I/O
	vms    map[string]*vm
	closed bool
}

var _ API = (*Host)(nil)

// New opens the host: it reads the VMs of the store and settles those that an earlier daemon left running.
func New(ctx context.Context, c Config) (*Host, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, dir := range []string{c.Home, filepath.Join(c.Home, "boot"), filepath.Join(c.Home, "scratch"), filepath.Join(c.Home, "vms"), c.RunDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, Errorf(CodeInvalid, "choose another --home, or make the folder writable", "home folder: %w", err)
		}
	}
	h := &Host{cfg: c, store: c.Store, engine: c.Engine, now: c.Now, log: c.Log, answers: newAnswers(c.Now), vms: map[string]*vm{}}
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
		if err := h.settle(ctx, v); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// settle makes the record of a VM true that an earlier daemon left as running: its machine, should it still live, is
// ended, and the VM is crashed.
func (h *Host) settle(ctx context.Context, v *vm) error {
	if v.state.State != StateRunning && v.state.State != StatePaused {
		return nil
	}
	endProcess(v.state.Process)
	return h.setState(ctx, v, status{State: StateCrashed, Reason: "the daemon ended without stopping it"})
}

// Close checkpoints and stops every running VM. What can't be checkpointed within ctx is stopped and goes on from its
// head; the errors say which.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	vms := make([]*vm, 0, len(h.vms))
	for _, v := range h.vms {
		vms = append(vms, v)
	}
	h.mu.Unlock()
	var errs []error
	for _, v := range vms {
		if v.running() == nil {
			continue
		}
		if err := h.stopForShutdown(ctx, v); err != nil {
			errs = append(errs, err)
		}
	}
	h.watchers.Wait()
	return errors.Join(errs...)
}

func (h *Host) stopForShutdown(ctx context.Context, v *vm) error {
	unlock, err := v.lock(ctx, "shutdown")
	if err != nil {
		h.discard(v, "the daemon was stopped while another operation ran")
		return err
	}
	defer unlock()
	return h.stop(ctx, v, false, "the daemon was stopped", "before the daemon stopped")
}

// Info says what this host is and can do.
func (h *Host) Info(ctx context.Context) (Info, error) {
	caps, err := h.engine.Probe(ctx)
	if err != nil {
		return Info{}, h.explain(err, "")
	}
	return Info{Version: h.cfg.Version, PID: os.Getpid(), Home: h.cfg.Home, Capabilities: caps}, nil
}
