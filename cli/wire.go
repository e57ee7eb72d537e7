package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"flash/cas/local"
	"flash/cas/tiered"
	"flash/cli/httpapi"
	"flash/store"
	"flash/vmm"
	"flash/vmm/host"
	"flash/vmm/qemu"
)

// shutdownLimit bounds the checkpoints that a daemon takes of its VMs when it ends.
const shutdownLimit = 5 * time.Minute

// newEngine makes an engine whose machines have their sockets under run.
type newEngine func(run string, log *slog.Logger) (vmm.Engine, error)

func qemuEngine(run string, log *slog.Logger) (vmm.Engine, error) {
	e, err := qemu.New(qemu.Config{RunDir: run, Cgroup: filepath.Base(run), Log: log})
	if err != nil {
		return nil, err // and not an interface that holds a nil engine
	}
	return e, nil
}

// open builds the host of a home from its parts: the store over its packs, and the engine.
func open(ctx context.Context, home string, log *slog.Logger) (host.API, io.Closer, error) {
	p, err := openParts(ctx, home, log, qemuEngine)
	if err != nil {
		return nil, nil, err
	}
	return p.host, p, nil
}

// parts is what open has built, in order; they are closed in the other.
type parts struct {
	host   *host.Host
	engine vmm.Engine
	store  *store.Store
	chunks *local.Store
	tiers  *tiered.Store
	run    string

	stopUpkeep context.CancelFunc
	upkeep     chan struct{} // closed when it has ended
}

// openParts is open with any engine. What it has built is closed again when it fails.
func openParts(ctx context.Context, home string, log *slog.Logger, engine newEngine) (_ *parts, err error) {
	p := &parts{run: runDir(home)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := os.RemoveAll(p.run); err != nil { // sockets of a daemon that was killed; the home's lock is ours
		return nil, host.Explain(err, home)
	}
	if err := os.MkdirAll(p.run, 0o700); err != nil {
		return nil, host.Explain(err, home)
	}
	if err := httpapi.SweepSockets(socketPath(home)); err != nil {
		return nil, host.Explain(err, home)
	}
	if p.chunks, err = local.Open(ctx, local.Config{Dir: home, Log: log}); err != nil {
		return nil, host.Explain(err, home)
	}
	p.tiers = tiered.New(p.chunks)
	p.tiers.OnEvent(func(e tiered.Event) {
		log.Error("a chunk is damaged here and was read from a remote", "remote", e.Far, "chunk", e.Chunk, "damage", e.Near)
	})
	if p.store, err = store.Open(ctx, store.Config{Dir: filepath.Join(home, "meta"), Chunks: p.tiers, Log: log, Trial: tryStore}); err != nil {
		return nil, host.Explain(err, home)
	}
	if p.engine, err = engine(p.run, log); errors.Is(err, vmm.ErrUnsupported) {
		return nil, host.Errorf(host.CodeNoEngine, "install it: apt-get install qemu-system-x86, or your system's package", "no VM can be run: %w", err)
	} else if err != nil {
		return nil, host.Explain(err, home)
	}
	if p.host, err = host.New(ctx, host.Config{Store: p.store, Engine: p.engine, Home: home, RunDir: p.run, Version: Version, Log: log,
		Remotes: &remoteWiring{home: home, near: p.chunks, tiers: p.tiers, store: p.store, log: log}}); err != nil {
		return nil, err
	}
	p.upkeep = make(chan struct{})
	upkeep, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stopUpkeep = stop
	go func() {
		defer close(p.upkeep)
		p.host.Upkeep(upkeep)
	}()
	return p, nil
}

// rebuild makes the database of a home again. Precondition: the home's lock is ours.
func rebuild(ctx context.Context, home string, log *slog.Logger) (r store.RebuildReport, err error) {
	chunks, err := local.Open(ctx, local.Config{Dir: home, Log: log})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, chunks.Close()) }()
	return store.Rebuild(ctx, store.Config{Dir: filepath.Join(home, "meta"), Chunks: chunks, Log: log, Trial: tryStore})
}

// StopVMs checkpoints and stops the VMs.
func (p *parts) StopVMs() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	return p.host.Close(ctx)
}

// Close checkpoints and stops the VMs, then ends everything under them.
func (p *parts) Close() error {
	var errs []error
	if p.stopUpkeep != nil {
		p.stopUpkeep()
		<-p.upkeep
	}
	if p.host != nil {
		errs = append(errs, p.StopVMs())
	}
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.chunks != nil {
		errs = append(errs, p.chunks.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(p.run))...)
}

// runDir is where a home's sockets lie: short, since a unix socket's path has 108 bytes (unix(7)), and the home's alone.
func runDir(home string) string {
	sum := sha256.Sum256([]byte(home))
	base := os.TempDir()
	if os.Geteuid() == 0 {
		base = "/run"
	} else if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		base = dir
	}
	return filepath.Join(base, "flash-"+hex.EncodeToString(sum[:6]))
}
