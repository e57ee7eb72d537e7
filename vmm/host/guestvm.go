package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flash/blockdelta"
	"flash/store"
	"flash/vmm"
	"flash/vmm/guest"
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

	dir    string     // of its sockets
	ports  []vmm.Port // to be published, by the host ports they have got
	memory *witness   // nil: booted

	diskLost chan error // capacity 1: a block that can never come

	restoredFrom store.SnapshotID       // zero: booted, or its working set is remembered
	broughtIn    []uint64               // pages brought in before it ran
	closing      atomic.Bool            // the host ends it on purpose; its end is no crash
	lost         atomic.Pointer[string] // why the host gave it up

	pinMu     sync.Mutex // guards the rest
	pinsEnded bool
	memoryPin func() // what its memory comes from, for as long as it lives
	basePin   func() // what its disks and the next checkpoint stand on
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
		return nil, h.explainEngine(fmt.Errorf("start %s: %w", b.id, err), b.id)
	}
	if err = h.greet(ctx, g, b, h.deadlines.Boot); err != nil {
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
	if err := h.greet(ctx, g, b, h.deadlines.Answer); err != nil {
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
	g.restoredFrom, g.memory = b.snap.ID(), watchMemory(mem)
	g.hold(&g.memoryPin, b.snap.Pin())
	attach.Memory, attach.MemoryKey = g.memory, b.snap.ID().String()
	g.broughtIn = h.workingSet(ctx, b)
	attach.WorkingSet = g.broughtIn
	spec := vmm.Spec{VCPUs: b.hw.VCPUs, MemBytes: b.hw.memBytes(), MAC: b.hw.MAC, Facts: facts}
	if g.machine, err = h.engine.Restore(ctx, spec, attach, vmm.State{Data: state, Facts: facts}); err != nil {
		return nil, h.explainEngine(fmt.Errorf("restore %s: %w", b.id, err), b.id)
	}
	return g, nil
}

// prepare opens the disks and says what to plug in.
func (h *Host) prepare(ctx context.Context, b bring) (*guestVM, vmm.Attach, error) {
	disk, err := b.snap.Image(ctx, "disk0")
	if err != nil {
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	lost := make(chan error, 1)
	overlay, err := blockdelta.New(diskWitness{disk, "disk0", lost}, h.scratchDir())
	if err != nil {
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	g := &guestVM{id: b.id, disks: []vmm.Disk{{Name: "disk0", Overlay: overlay}}, diskLost: lost, base: b.snap.ID(), head: b.head}
	g.hold(&g.basePin, b.snap.Pin())
	if g.dir, err = os.MkdirTemp(h.cfg.RunDir, "m"); err == nil {
		err = os.MkdirAll(filepath.Dir(h.consolePath(b.id)), 0o700)
	}
	if err != nil {
		h.abandon(g)
		return nil, vmm.Attach{}, h.explain(err, b.id)
	}
	if err := trimConsole(h.consolePath(b.id)); err != nil {
		h.log.Warn("console not trimmed", "vm", b.id, "cause", err)
	}
	return g, vmm.Attach{Dir: g.dir, Disks: g.disks, Ports: b.ports, Console: h.consolePath(b.id), Scratch: h.scratchDir()}, nil
}

// greet lets a new machine run and has its agent put clock, randomness and identity right before the workload goes on.
func (h *Host) greet(ctx context.Context, g *guestVM, b bring, deadline time.Duration) error {
	g.ports = g.machine.Ports()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ctx, stop := untilDone(ctx, g.machine)
	defer stop()
	ctx, unwatch := g.memory.endWith(ctx)
	defer unwatch()
	err := h.meet(ctx, g, b)
	select {
	case lost := <-g.diskLost: // better refused than ended at once
		return h.explain(fmt.Errorf("disk of %s: %w", g.id, lost), g.id)
	default:
	}
	if lost := g.memory.failure(); err != nil && lost != nil {
		return h.explain(fmt.Errorf("memory of %s: %w", g.id, lost), g.id)
	}
	return err
}

func (h *Host) meet(ctx context.Context, g *guestVM, b bring) error {
	began := time.Now()
	if err := g.machine.Resume(ctx); err != nil {
		return h.explainGuest(g, fmt.Errorf("resume %s: %w", g.id, err))
	}
	resumed := time.Now()
	g.gen = uint64(h.now().UnixNano())
	if last := generationOf(b.snap.Meta()); g.gen <= last {
		g.gen = last + 1
	}
	client, _, err := guest.Connect(ctx, g.machine.Channel(), g.gen)
	if err != nil {
		return h.explainGuest(g, fmt.Errorf("the agent in %s doesn't answer: %w", g.id, err))
	}
	g.client = client
	answered := time.Now()
	seed := make([]byte, 64)
	rand.Read(seed)
	repair := guest.Repair{Now: h.now(), Seed: seed, Generation: fmt.Sprintf("%s-%d", g.id, g.gen), Hostname: hostname(g.id), Hooks: g.restoredFrom != store.SnapshotID{}, Thaw: true}
	if b.fresh {
		repair.MAC = b.hw.MAC
	}
	if err := client.Repair(ctx, repair); err != nil {
		return h.explainGuest(g, fmt.Errorf("put clock, randomness and identity right in %s: %w", g.id, err))
	}
	h.log.Debug("guest greeted", "vm", g.id, "resume", resumed.Sub(began), "answer", answered.Sub(resumed), "repair", time.Since(answered),
		"brought_in", len(g.broughtIn), "touched", len(g.machine.Touched()))
	return nil
}

// close ends the guest and frees what it held. Ending twice is harmless.
func (g *guestVM) close() error {
	if !g.ended() {
		g.closing.Store(true)
	}
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
	if g.dir != "" {
		errs = append(errs, os.RemoveAll(g.dir))
	}
	g.endPins()
	return errors.Join(errs...)
}

// lose ends a guest that can't go on, as a crash.
func (g *guestVM) lose(why string) {
	g.lost.CompareAndSwap(nil, &why)
	g.machine.Close() // whoever settles the end says what is wrong with it
}

// ended tells whether nothing runs any more.
func (g *guestVM) ended() bool {
	if g.machine == nil {
		return false
	}
	select {
	case <-g.machine.Done():
		return true
	default:
		return false
	}
}

// endStatus is what has become of a VM whose guest has ended by itself.
func (g *guestVM) endStatus() status {
	exit := g.machine.Exit()
	s := status{State: StateCrashed, Reason: exit.Reason}
	if exit.Detail != "" && exit.Reason != "guest shutdown" {
		s.Reason = oneLine(exit.Reason + ": " + exit.Detail) // the kernel's last word, or QEMU's
	}
	if why := g.lost.Load(); why != nil {
		s.Reason = *why
	} else if exit.Reason == "guest shutdown" {
		s.State = StateStopped
	}
	return s
}

// abandon ends a guest that is of no use; what goes wrong with that is for the log.
func (h *Host) abandon(g *guestVM) {
	if err := g.close(); err != nil {
		h.log.Warn("guest not closed cleanly", "vm", g.id, "cause", err)
	}
}

// abandonSoon is abandon for a guest that nobody waits for: to end a process with its memory takes 20 ms. Close of the host
// waits for it.
func (h *Host) abandonSoon(g *guestVM) {
	h.mu.Lock()
	gone := h.gone
	if !gone {
		h.watchers.Add(1)
	}
	h.mu.Unlock()
	if gone {
		h.abandon(g)
		return
	}
	go func() {
		defer h.watchers.Done()
		h.abandon(g)
	}()
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

// hostname makes a VM's id fit for a host name.
func hostname(id string) string { return strings.NewReplacer("_", "-", ".", "-").Replace(id) }
