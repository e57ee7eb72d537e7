package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

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

// spec is a VM's own part of its store record.
type spec struct {
	hardware
	Restart string `json:"restart,omitempty"` // a policy; "", of older records: no
}

// hardware is what a VM is made of. It never changes after Create.
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
	Kept    bool        `json:"kept,omitempty"`  // stopped by the daemon for its own sake: it comes back if its policy says so
	Saved   bool        `json:"saved,omitempty"` // and nothing was lost by it
}

// vm is one VM in this process.
type vm struct {
	id     string
	hw     hardware
	bundle store.SnapshotID
	op     chan struct{} // holds one token; a verb that changes the VM takes it

	recording sync.Mutex // held while the state is written, so that the last one set is the last one written

	mu      sync.Mutex // guards the rest
	restart string     // a policy
	keeping bool       // a goroutine brings it back
	returns int        // in a row
	cameUp  time.Time  // when its last guest did
	state   status
	guest   *guestVM            // nil when nothing runs
	image   *bundle.ImageConfig // nil: not read yet
	removed bool
	touched []uint64 // what its last restored guest touched first; nil: not known
}

// openVM reads a VM's record. The caller holds the VM.
func openVM(r store.VM) (*vm, error) {
	v := &vm{id: r.ID, op: make(chan struct{}, 1), bundle: r.Bundle}
	var of spec
	if err := json.Unmarshal(r.Spec, &of); err != nil {
		return nil, Errorf(CodeCorrupt, "run flash check", "VM %s: its record can't be read: %w", r.ID, err)
	}
	v.hw, v.restart = of.hardware, of.Restart
	if v.restart == "" {
		v.restart = RestartNo
	}
	if err := checkRestart(v.restart); err != nil {
		return nil, Errorf(CodeCorrupt, "run flash check", "VM %s: its record: %w", r.ID, err)
	}
	if len(r.State) > 0 {
		if err := json.Unmarshal(r.State, &v.state); err != nil {
			return nil, Errorf(CodeCorrupt, "run flash check", "VM %s: its state can't be read: %w", r.ID, err)
		}
	}
	if v.state.State == "" { // it came from elsewhere, or from the packs alone
		v.state = status{State: StateStopped, Reason: "brought back"}
	}
	return v, nil
}

// unlock lets others have the VM.
func (v *vm) unlock() { v.op <- struct{}{} }

// lock takes the VM for a verb. Others wait for it as long as their ctx does.
func (h *Host) lock(ctx context.Context, v *vm, verb string) (unlock func(), err error) {
	select {
	case <-v.op:
	case <-ctx.Done():
		return nil, Errorf(CodeVMBusy, "try again when the operation that runs has ended", "%s %s: another operation on it is still running: %w", verb, v.id, ctx.Err())
	}
	v.mu.Lock()
	removed := v.removed
	v.mu.Unlock()
	if removed {
		v.unlock()
		return nil, noVM(v.id)
	}
	return v.unlock, nil
}

// running gives the guest, or nil. A guest that has ended is settled before anybody is told that it runs.
func (h *Host) running(v *vm) *guestVM {
	for {
		v.mu.Lock()
		g := v.guest
		v.mu.Unlock()
		if g == nil || !g.ended() {
			return g
		}
		h.noteEnd(v, g)
	}
}

// find gives a VM by its id.
func (h *Host) find(id string) (*vm, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, shuttingDown()
	}
	v := h.vms[id]
	if v == nil {
		return nil, noVM(id)
	}
	return v, nil
}

func noVM(id string) error {
	return Errorf(CodeVMNotFound, "flash ps lists the VMs there are", "no VM is called %q", id)
}

func shuttingDown() error {
	return Errorf(CodeDaemon, "try again in a moment; the next command starts the daemon", "the daemon is shutting down")
}

// need gives a VM's guest, or the error that says why there is none.
func (h *Host) need(v *vm, verb string) (*guestVM, error) {
	if g := h.running(v); g != nil {
		return g, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.removed {
		return nil, noVM(v.id)
	}
	return nil, Errorf(CodeVMNotRunning, fmt.Sprintf("flash start %s brings it back from its newest checkpoint", v.id), "%s %s: it is %s%s", verb, v.id, v.state.State, because(v.state))
}

// because adds the reason of a state where it says more than the state.
func because(s status) string {
	if s.Reason == "" || s.Reason == s.State {
		return ""
	}
	return ", " + s.Reason
}

// setState says what became of a VM.
func (h *Host) setState(v *vm, s status) {
	v.mu.Lock()
	v.state = s
	v.mu.Unlock()
	h.record(v)
}

// record writes a VM's state to the store, for the next daemon. That it can't be is no reason to undo what has happened:
// this daemon knows better, and the next one comes to a VM that can be started.
func (h *Host) record(v *vm) {
	v.recording.Lock()
	defer v.recording.Unlock()
	v.mu.Lock()
	s, removed := v.state, v.removed
	v.mu.Unlock()
	if removed {
		return
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = h.store.SetVMState(context.Background(), v.id, b)
	}
	if err != nil {
		h.log.Error("state not recorded", "vm", v.id, "state", s.State, "cause", err)
	}
}

func (h *Host) consolePath(id string) string {
	return filepath.Join(h.cfg.Home, "vms", id, "console.log")
}

// view is the VM as ps shows it.
func (h *Host) view(ctx context.Context, v *vm) (VM, error) {
	h.running(v) // settles a guest that has ended
	record, err := h.store.VM(ctx, v.id)
	if errors.Is(err, store.ErrNotFound) {
		return VM{}, noVM(v.id)
	}
	if err != nil {
		return VM{}, h.explain(err, v.id)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := VM{
		ID: v.id, State: v.state.State, Reason: v.state.Reason, Bundle: v.hw.Bundle, VCPUs: v.hw.VCPUs, MemMiB: v.hw.MemMiB,
		Created: record.Created, EachCommand: v.hw.EachCommand, Ports: v.hw.Ports, From: v.hw.From, Restart: v.restart,
		Checkpoints: record.Checkpoints, Replication: h.lagsOf(v.id),
	}
	if record.Head >= 0 {
		out.Head = &record.Head
	}
	if out.Ports == nil {
		out.Ports = []vmm.Port{}
	}
	if v.guest != nil {
		out.PID = v.guest.machine.Process().PID
		out.Ports = append([]vmm.Port{}, v.guest.machine.Ports()...)
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
		if isTracking(r.ID) { // a remote's, not ours
			continue
		}
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
