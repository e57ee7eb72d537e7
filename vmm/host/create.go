package host

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"flash/store"
	"flash/vmm"
)

// Limits of what a VM may be given.
const (
	minMemMiB     = 128 // below it Debian's kernel doesn't get to its init; Config may say another
	maxMemMiB     = 1 << 20
	maxVCPUs      = 64
	defaultMemMiB = 512
	maxIDBytes    = 63 // as validID says: also a host name's
)

var validID = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

func checkID(id string) error {
	if !validID.MatchString(id) {
		return Errorf(CodeInvalid, "use 1 to 63 of a-z 0-9 . _ - with a letter or digit at both ends, as in agent-1", "%q is not a name for a VM", id)
	}
	return nil
}

func checkPorts(ports []vmm.Port) error {
	taken := map[int]bool{}
	for _, p := range ports {
		if p.Guest < 1 || p.Guest > 65535 || p.Host < 0 || p.Host > 65535 {
			return Errorf(CodeInvalid, "give ports as HOST:GUEST, each from 1 to 65535, HOST 0 for any", "port %d:%d is out of range", p.Host, p.Guest)
		}
		if p.Host != 0 && taken[p.Host] {
			return Errorf(CodeInvalid, "give each host port once", "host port %d is named twice", p.Host)
		}
		taken[p.Host] = true
	}
	return nil
}

// Create makes a VM and starts it from its bundle.
func (h *Host) Create(ctx context.Context, r CreateRequest) (VM, error) {
	return once(ctx, h.answers, "create "+r.ID, r.RequestID, func() (VM, error) { return h.create(ctx, r) })
}

func (h *Host) create(ctx context.Context, r CreateRequest) (VM, error) {
	if r.VCPUs == 0 {
		r.VCPUs = 1
	}
	if r.MemMiB == 0 {
		r.MemMiB = defaultMemMiB
	}
	if err := checkID(r.ID); err != nil {
		return VM{}, err
	}
	if r.MemMiB < h.cfg.MinMemMiB || r.MemMiB > maxMemMiB {
		return VM{}, Errorf(CodeInvalid, fmt.Sprintf("give --mem-mib %d or more; 512 is a good start", h.cfg.MinMemMiB), "%d MiB of memory is not from %d to %d", r.MemMiB, h.cfg.MinMemMiB, maxMemMiB)
	}
	if r.VCPUs < 1 || r.VCPUs > maxVCPUs {
		return VM{}, Errorf(CodeInvalid, "give --vcpus 1", "%d virtual CPUs is not from 1 to %d", r.VCPUs, maxVCPUs)
	}
	if err := checkPorts(r.Ports); err != nil {
		return VM{}, err
	}
	if r.Restart == "" {
		r.Restart = RestartNo
	}
	if err := checkRestart(r.Restart); err != nil {
		return VM{}, err
	}
	if r.Bundle == "" {
		return VM{}, Errorf(CodeInvalid, "give --bundle; flash bundle ls lists them", "no bundle was named")
	}
	bundle, err := h.store.Bundle(ctx, r.Bundle)
	if errors.Is(err, store.ErrNotFound) {
		return VM{}, Errorf(CodeBundleNotFound, fmt.Sprintf("flash bundle build %s, or flash bundle ls for those there are", r.Bundle), "no bundle is called %q", r.Bundle)
	}
	if err != nil {
		return VM{}, h.explain(err, r.ID)
	}
	hw := hardware{Bundle: r.Bundle, VCPUs: r.VCPUs, MemMiB: r.MemMiB, EachCommand: r.Checkpoints, Ports: r.Ports, MAC: newMAC()}
	v, err := h.add(ctx, r.ID, spec{hw, r.Restart}, bundle.Snapshot, nil)
	if err != nil {
		return VM{}, err
	}
	defer v.unlock()
	if err := h.bootVM(ctx, v); err != nil {
		// It has no state of its own yet, so nothing is lost with its record, and the name is free again.
		return VM{}, also(err, h.drop(context.WithoutCancel(ctx), v))
	}
	return h.view(ctx, v)
}

// bootVM starts a VM that has no checkpoint from its bundle.
func (h *Host) bootVM(ctx context.Context, v *vm) error {
	snap, err := h.store.Snapshot(ctx, v.bundle)
	if err != nil {
		return h.explain(fmt.Errorf("bundle of %s: %w", v.id, err), v.id)
	}
	g, err := h.boot(ctx, bring{id: v.id, hw: v.hw, snap: snap, head: -1, ports: v.hw.Ports})
	if err != nil {
		return err
	}
	return h.adopt(v, g)
}

// add makes a VM in the store and here. Its caller holds it, and so is the first to do anything with it.
func (h *Host) add(ctx context.Context, id string, of spec, bundle store.SnapshotID, from *store.ForkPoint) (*vm, error) {
	record, err := json.Marshal(of)
	if err != nil {
		return nil, h.explain(err, id)
	}
	state, err := json.Marshal(status{State: StateStopped, Reason: reasonStarting})
	if err != nil {
		return nil, h.explain(err, id)
	}
	h.mu.Lock()
	closed, taken := h.closed, h.vms[id] != nil // also while the last files of one that was removed are going
	h.mu.Unlock()
	if closed {
		return nil, shuttingDown()
	}
	if taken {
		return nil, vmExists(id)
	}
	err = h.store.CreateVM(ctx, store.VM{ID: id, Created: h.now().UTC(), Spec: record, State: state, Bundle: bundle}, from)
	if errors.Is(err, store.ErrExists) {
		return nil, vmExists(id)
	}
	if err != nil {
		return nil, h.explain(fmt.Errorf("create %s: %w", id, err), id)
	}
	v, err := openVM(store.VM{ID: id, Spec: record, State: state, Bundle: bundle})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	closed = h.closed
	if !closed {
		h.vms[id] = v
	}
	h.mu.Unlock()
	if closed {
		return nil, also(shuttingDown(), h.drop(context.WithoutCancel(ctx), v))
	}
	return v, nil
}

func vmExists(id string) error {
	return Errorf(CodeVMExists, fmt.Sprintf("choose another --id, or flash rm %s first", id), "a VM is called %q already", id)
}

// drop removes a VM from the store and from here. Precondition: the caller holds it, and it has no guest.
func (h *Host) drop(ctx context.Context, v *vm) error {
	v.recording.Lock() // a state written later would find no VM, or another one of this name
	err := h.store.DeleteVM(ctx, v.id)
	if err == nil {
		v.mu.Lock()
		v.removed = true
		v.mu.Unlock()
	}
	v.recording.Unlock()
	if err != nil {
		return h.explain(fmt.Errorf("remove %s: %w", v.id, err), v.id)
	}
	// Until it is forgotten here no other VM gets this name, so these files are its own.
	err = os.RemoveAll(filepath.Dir(h.consolePath(v.id)))
	h.mu.Lock()
	if h.vms[v.id] == v {
		delete(h.vms, v.id)
	}
	h.mu.Unlock()
	if err != nil {
		return h.explain(fmt.Errorf("remove the files of %s: %w", v.id, err), v.id)
	}
	return nil
}

// newMAC gives a random address in QEMU's own block.
func newMAC() string {
	b := make([]byte, 3)
	rand.Read(b)
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", b[0], b[1], b[2])
}
