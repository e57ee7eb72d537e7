package host

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"flash/store"
	"flash/vmm"
	"flash/vmm/bundle"
)

// States of a VM, as ps shows them.
const (
	StateRunning = "running"
	StatePaused  = "paused"
	StateStopped = "stopped"
	StateCrashed = "crashed"
)

// hardware is a VM's own part of its store record: what it is made of. It never changes after Create.
type hardware struct {
	Bundle      string           `json:"bundle"`
	VCPUs       int              `json:"vcpus"`
	MemMiB      int              `json:"mem_mib"`
	EachCommand bool             `json:"checkpoint_each_command"`
	Ports       []vmm.Port       `json:"ports"`
	MAC         string           `json:"mac"`
	From        *store.ForkPoint `json:"from,omitempty"`
}

func (hw hardware) memBytes() uint64 { return uint64(hw.MemMiB) << 20 }

// status is what the host last knew of a VM's guest; it is in the store so that the next daemon can settle it.
type status struct {
	State   string      `json:"state"`
	Reason  string      `json:"reason,omitempty"`
	Process vmm.Process `json:"process"`
}

// vm is one VM in this process.
type vm struct {
	id string
	hw hardware
	op chan struct{} // holds one token; a verb that changes the VM takes it

	mu     sync.Mutex // guards the rest
	record store.VM
	state  status
	guest  *guestVM            // nil when nothing runs
	image  *bundle.ImageConfig // nil: not read yet
}

func openVM(r store.VM) (*vm, error) {
	v := &vm{id: r.ID, op: make(chan struct{}, 1), record: r}
	v.op <- struct{}{}
	if err := json.Unmarshal(r.Spec, &v.hw); err != nil {
		return nil, Errorf(CodeCorrupt, "run flash check", "VM %s: its record can't be read: %w", r.ID, err)
	}
	if len(r.State) > 0 {
		if err := json.Unmarshal(r.State, &v.state); err != nil {
			return nil, Errorf(CodeCorrupt, "run flash check", "VM %s: its state can't be read: %w", r.ID, err)
		}
	}
	return v, nil
}

// lock takes the VM for a verb. Others wait for it as long as their ctx does.
func (v *vm) lock(ctx context.Context, verb string) (unlock func(), err error) {
	select {
	case <-v.op:
		return func() { v.op <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, Errorf(CodeVMBusy, "try again when the operation that runs has ended", "%s %s: another operation on it is still running: %w", verb, v.id, ctx.Err())
	}
}

// running gives the guest, or nil.
func (v *vm) running() *guestVM {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.guest
}

func (v *vm) setGuest(g *guestVM) {
	v.mu.Lock()
	v.guest = g
	v.mu.Unlock()
}

// find gives a VM by its id.
func (h *Host) find(id string) (*vm, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, Errorf(CodeDaemon, "try again in a moment; the next command starts the daemon", "the daemon is shutting down")
	}
	v := h.vms[id]
	if v == nil {
		return nil, Errorf(CodeVMNotFound, "flash ps lists the VMs there are", "no VM is called %q", id)
	}
	return v, nil
}

// need gives a VM's guest, or the error that says why there is none.
func (v *vm) need(verb string) (*guestVM, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.guest == nil {
		return nil, Errorf(CodeVMNotRunning, fmt.Sprintf("flash start %s brings it back from its newest checkpoint", v.id), "%s %s: it is %s%s", verb, v.id, v.state.State, because(v.state.Reason))
	}
	return v.guest, nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// setState records what became of a VM.
func (h *Host) setState(ctx context.Context, v *vm, s status) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.state = s
	v.mu.Unlock()
	if err := h.store.SetVMState(ctx, v.id, b); err != nil {
		return h.explain(fmt.Errorf("VM %s: record that it is %s: %w", v.id, s.State, err), v.id)
	}
	return nil
}

func (h *Host) consolePath(id string) string {
	return filepath.Join(h.cfg.Home, "vms", id, "console.log")
}

// view is the VM as ps shows it.
func (h *Host) view(ctx context.Context, v *vm) (VM, error) {
	record, err := h.store.VM(ctx, v.id)
	if err != nil {
		return VM{}, h.explain(err, v.id)
	}
	history, err := h.store.History(ctx, v.id)
	if err != nil {
		return VM{}, h.explain(err, v.id)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := VM{
		ID: v.id, State: v.state.State, Reason: v.state.Reason, Bundle: v.hw.Bundle, VCPUs: v.hw.VCPUs, MemMiB: v.hw.MemMiB,
		Created: record.Created, EachCommand: v.hw.EachCommand, Ports: v.hw.Ports, From: v.hw.From,
	}
	for _, c := range history {
		if c.From == nil {
			out.Checkpoints++
		}
	}
	if record.Head >= 0 {
		out.Head = &record.Head
	}
	if out.Ports == nil {
		out.Ports = []vmm.Port{}
	}
	if v.guest != nil {
		out.PID = v.guest.machine.Process().PID
		out.Ports = v.guest.machine.Ports()
	}
	return out, nil
}

// List gives all VMs by id.
func (h *Host) List(ctx context.Context) ([]VM, error) {
	records, err := h.store.VMs(ctx)
	if err != nil {
		return nil, h.explain(err, "")
	}
	out := make([]VM, 0, len(records))
	for _, r := range records {
		one, err := h.Get(ctx, r.ID)
		if isCode(err, CodeVMNotFound) { // removed since
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// Get gives one VM.
func (h *Host) Get(ctx context.Context, id string) (VM, error) {
	v, err := h.find(id)
	if err != nil {
		return VM{}, err
	}
	return h.view(ctx, v)
}
