package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"flash/blockdelta"
	"flash/store"
	"flash/vmm"
	"flash/vmm/guest"
)

// Deadlines of the waits on a guest or an engine (I9).
const (
	answerDeadline  = 20 * time.Second // a restored guest's first answer; cold memory under emulation is slow
	controlDeadline = 15 * time.Second // freeze, thaw, repair
	engineDeadline  = 60 * time.Second // one step of the engine
	freezeLimit     = 60 * time.Second // after which an abandoned guest thaws by itself
)

// guestVM is what runs for a VM: a machine, its disks and the conversation with its agent.
type guestVM struct {
	id      string
	machine vmm.Machine
	client  *guest.Client
	disks   []vmm.Disk
	base    store.SnapshotID // what memory and disks descend from; moves with every commit
	head    int              // the checkpoint of base, -1: the bundle
	gen     uint64
	holds   []func() // let go of the snapshots it reads from, which gc must leave alone until then

	restoredFrom store.SnapshotID // zero: booted, or its working set is remembered
	broughtIn    []uint64         // pages brought in before it ran
	closing      atomic.Bool      // the host ends it on purpose; its end is no crash
}

// bring is what a guest is made from.
type bring struct {
	id    string
	hw    hardware
	snap  *store.Snapshot
	head  int
	fresh bool // a fork: identity changes
	ports []vmm.Port
}

// boot starts a guest from a bundle.
func (h *Host) boot(ctx context.Context, b bring) (_ *guestVM, err error) {
	kernel, err := h.bootFile(ctx, b.snap, "kernel")
	if err != nil {
		return nil, err
	}
	initrd, err := h.bootFile(ctx, b.snap, "initrd")
	if err != nil {
		return nil, err
	}
	g, attach, err := h.prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.abandon(g)
		}
	}()
	spec := vmm.Spec{VCPUs: b.hw.VCPUs, MemBytes: b.hw.memBytes(), MAC: b.hw.MAC, Kernel: kernel, Initrd: initrd, Cmdline: "flash.hostname=" + hostname(b.id)}
	if g.machine, err = h.engine.Boot(ctx, spec, attach); err != nil {
		return nil, h.explain(fmt.Errorf("start %s: %w", b.id, err), b.id)
	}
	if err = h.greet(ctx, g, b, vmm.BootDeadline); err != nil {
		return nil, err
	}
	return g, nil
}

// restore makes a guest that goes on from a checkpoint. It answers, is repaired and thawed when restore returns.
func (h *Host) restore(ctx context.Context, b bring) (*guestVM, error) {
	g, err := h.load(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := h.greet(ctx, g, b, answerDeadline); err != nil {
		h.abandon(g)
		return nil, err
	}
	return g, nil
}

// load makes a guest that stands paused at a checkpoint.
func (h *Host) load(ctx context.Context, b bring) (_ *guestVM, err error) {
	facts, err := factsOf(b.snap.Meta())
	if err != nil {
		return nil, err
	}
	stateImage, err := b.snap.Image(ctx, "state")
	if err != nil {
		return nil, h.explain(err, b.id)
	}
	state, err := stateImage.ReadAll(ctx)
	if err != nil {
		return nil, h.explain(fmt.Errorf("device state of %s: %w", b.id, err), b.id)
	}
	mem, err := b.snap.Image(ctx, "mem")
	if err != nil {
		return nil, h.explain(err, b.id)
	}
	g, attach, err := h.prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.abandon(g)
		}
	}()
	g.restoredFrom = b.snap.ID()
	attach.Memory, attach.MemoryKey = mem, b.snap.ID().String()
	g.broughtIn = h.workingSet(ctx, b.snap)
	attach.WorkingSet = g.broughtIn
	spec := vmm.Spec{VCPUs: b.hw.VCPUs, MemBytes: b.hw.memBytes(), MAC: b.hw.MAC, Facts: facts}
	if g.machine, err = h.engine.Restore(ctx, spec, attach, vmm.State{Data: state, Facts: facts}); err != nil {
		return nil, h.explain(fmt.Errorf("restore %s: %w", b.id, err), b.id)
	}
	return g, nil
}

// prepare opens the disks and says what to plug in.
func (h *Host) prepare(ctx context.Context, b bring) (*guestVM, vmm.Attach, error) {
	disk, err := b.snap.Image(ctx, "disk0")
	if err != nil {
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	overlay, err := blockdelta.New(disk, filepath.Join(h.cfg.Home, "scratch"))
	if err != nil {
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	g := &guestVM{id: b.id, disks: []vmm.Disk{{Name: "disk0", Overlay: overlay}}, base: b.snap.ID(), head: b.head}
	// That a name keeps the snapshot is asked once more afterwards: by the fork point, by MoveHead, by the VM's own record.
	g.holds = append(g.holds, b.snap.Pin())
	dir, err := os.MkdirTemp(h.cfg.RunDir, "m")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(h.consolePath(b.id)), 0o700)
	}
	if err != nil {
		h.abandon(g)
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	return g, vmm.Attach{Dir: dir, Disks: g.disks, Ports: b.ports, Console: h.consolePath(b.id)}, nil
}

// greet lets a new machine run and has its agent put clock, randomness and identity right before the workload goes on.
func (h *Host) greet(ctx context.Context, g *guestVM, b bring, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ctx, stop := untilDone(ctx, g.machine)
	defer stop()
	if err := g.machine.Resume(ctx); err != nil {
		return h.explainGuest(g, fmt.Errorf("resume %s: %w", g.id, err))
	}
	g.gen = uint64(h.now().UnixNano())
	if last := generationOf(b.snap.Meta()); g.gen <= last {
		g.gen = last + 1
	}
	client, _, err := guest.Connect(ctx, g.machine.Channel(), g.gen)
	if err != nil {
		return h.explainGuest(g, fmt.Errorf("the agent in %s doesn't answer: %w", g.id, err))
	}
	g.client = client
	seed := make([]byte, 64)
	rand.Read(seed)
	repair := guest.Repair{Now: h.now(), Seed: seed, Generation: fmt.Sprintf("%s-%d", g.id, g.gen), Hostname: hostname(g.id), Hooks: g.restoredFrom != store.SnapshotID{}, Thaw: true}
	if b.fresh {
		repair.MAC = b.hw.MAC
	}
	if err := client.Repair(ctx, repair); err != nil {
		return h.explainGuest(g, fmt.Errorf("put clock, randomness and identity right in %s: %w", g.id, err))
	}
	return nil
}

// close ends the guest and frees what it held. Ending twice is harmless.
func (g *guestVM) close() error {
	g.closing.Store(true)
	var errs []error
	if g.client != nil {
		errs = append(errs, g.client.Close())
	}
	if g.machine != nil {
		errs = append(errs, g.machine.Close())
	}
	for _, d := range g.disks {
		errs = append(errs, d.Overlay.Close())
	}
	for _, release := range g.holds {
		release()
	}
	return errors.Join(errs...)
}

// abandon ends a guest that is of no use; what goes wrong with that is for the log.
func (h *Host) abandon(g *guestVM) {
	if err := g.close(); err != nil {
		h.log.Warn("guest not closed cleanly", "vm", g.id, "cause", err)
	}
}

// untilDone ends ctx with the machine.
func untilDone(ctx context.Context, m vmm.Machine) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		select {
		case <-m.Done():
			cancel(vmm.ErrGone)
		case <-ended:
		}
	}()
	return ctx, func() { close(ended); cancel(nil) }
}

// bootFile gives a kernel or initrd as a file, written from the store once.
func (h *Host) bootFile(ctx context.Context, snap *store.Snapshot, name string) (string, error) {
	path := filepath.Join(h.cfg.Home, "boot", snap.ID().String()[:32]+"-"+name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	im, err := snap.Image(ctx, name)
	if err != nil {
		return "", h.explain(fmt.Errorf("bundle: %w", err), "")
	}
	b, err := im.ReadAll(ctx)
	if err != nil {
		return "", h.explain(fmt.Errorf("bundle %s: %w", name, err), "")
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return "", h.explain(err, "")
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", h.explain(fmt.Errorf("write %s: %w", path, err), "")
	}
	return path, nil
}

// hostname makes a VM's id fit for a host name.
func hostname(id string) string { return strings.NewReplacer("_", "-", ".", "-").Replace(id) }

// lastLine gives the last line of a console, for errors.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 4096 {
		f.Seek(-4096, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
