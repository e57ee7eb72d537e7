package host

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"flash/store"
	"flash/vmm"
)

const (
	maxForkCount = 64
	// forksAtOnce bounds the children that come up side by side; more only wait for the same CPUs.
	forksAtOnce = 4
)

// Fork makes new VMs from a checkpoint; the parent goes on untouched. All children come up, or none stays.
func (h *Host) Fork(ctx context.Context, r ForkRequest) ([]VM, error) {
	return once(ctx, h.answers, "fork "+r.From, r.RequestID, func() ([]VM, error) { return h.fork(ctx, r) })
}

func (h *Host) fork(ctx context.Context, r ForkRequest) ([]VM, error) {
	if r.Count == 0 {
		r.Count = max(1, len(r.IDs))
	}
	if err := checkFork(r); err != nil {
		return nil, err
	}
	if isTracking(r.From) {
		if err := h.track(ctx, r.From); err != nil {
			return nil, err
		}
	}
	parent, err := h.find(r.From)
	if err != nil {
		return nil, err
	}
	names, release, err := h.reserve(parent.id, r.IDs, r.Count)
	if err != nil {
		return nil, err
	}
	defer release()
	entry, snap, err := h.forkPoint(ctx, parent, r.Checkpoint)
	if err != nil {
		return nil, err
	}
	from := &store.ForkPoint{VM: parent.id, Number: entry.Number}
	children := make([]*vm, r.Count) // all ours until all are up
	defer func() {
		for _, child := range children {
			if child != nil {
				child.unlock()
			}
		}
	}()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(forksAtOnce)
	for i, id := range names {
		group.Go(func() (err error) {
			children[i], err = h.forkOne(groupCtx, parent, id, from, snap, r.Ports)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, child := range children {
			if child != nil { // it came up, but has nothing of its own yet
				h.discard(child, status{Reason: "a sibling didn't come up"})
				err = also(err, h.drop(context.WithoutCancel(ctx), child))
			}
		}
		return nil, err
	}
	out := make([]VM, r.Count)
	for i, child := range children {
		if out[i], err = h.view(ctx, child); err != nil {
			return nil, err
		}
		out[i].Notice = connectionsNotice
	}
	return out, nil
}

// checkFork refuses what can be refused before anything is done.
func checkFork(r ForkRequest) error {
	if r.Count < 1 || r.Count > maxForkCount {
		return Errorf(CodeInvalid, fmt.Sprintf("give --count from 1 to %d", maxForkCount), "%d children is not from 1 to %d", r.Count, maxForkCount)
	}
	if len(r.IDs) > r.Count {
		return Errorf(CodeInvalid, "give as many names as --count, or fewer", "%d names for %d children", len(r.IDs), r.Count)
	}
	if err := checkPorts(r.Ports); err != nil {
		return err
	}
	for _, p := range r.Ports {
		if p.Host != 0 && r.Count > 1 {
			return Errorf(CodeInvalid, "give 0 as the host port, for any that is free", "%d children can't all have host port %d", r.Count, p.Host)
		}
	}
	for i, id := range r.IDs {
		if err := checkID(id); err != nil {
			return err
		}
		if slices.Contains(r.IDs[:i], id) {
			return Errorf(CodeInvalid, "give each child a name of its own", "%q is named twice", id)
		}
	}
	return nil
}

// reserve gives the children's names: those asked for, then parent-fork-N with the smallest N that are free. No other fork
// gets them until they are released.
func (h *Host) reserve(parent string, asked []string, count int) (names []string, release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := func(id string) bool { return h.vms[id] != nil || h.reserved[id] || slices.Contains(names, id) }
	for _, id := range asked {
		if taken(id) {
			return nil, nil, vmExists(id)
		}
		names = append(names, id)
	}
	parent = parent[strings.Index(parent, ":")+1:] // a remote's VM gives its own name
	for n := 1; len(names) < count; n++ {
		suffix := "-fork-" + strconv.Itoa(n)
		id := strings.TrimRight(parent[:min(len(parent), maxIDBytes-len(suffix))], "._-") + suffix
		if !taken(id) {
			names = append(names, id)
		}
	}
	for _, id := range names {
		h.reserved[id] = true
	}
	return names, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, id := range names {
			delete(h.reserved, id)
		}
	}, nil
}

// forkPoint finds the checkpoint to fork from. No number means the present: of a VM that runs a new checkpoint, of one
// that doesn't its head.
func (h *Host) forkPoint(ctx context.Context, parent *vm, number *int) (store.Checkpoint, *store.Snapshot, error) {
	if number == nil {
		unlock, err := h.lock(ctx, parent, "fork")
		if err != nil {
			return store.Checkpoint{}, nil, err
		}
		defer unlock()
		if h.running(parent) != nil {
			now, err := h.checkpoint(ctx, parent, "before fork", false)
			if err != nil {
				return store.Checkpoint{}, nil, err
			}
			number = &now.Number
		} else {
			record, err := h.store.VM(ctx, parent.id)
			if err != nil {
				return store.Checkpoint{}, nil, h.explain(err, parent.id)
			}
			if record.Head < 0 {
				return store.Checkpoint{}, nil, Errorf(CodeCheckpointNotFound, "flash start "+parent.id+" first", "%s doesn't run and has no checkpoint yet", parent.id)
			}
			number = &record.Head
		}
	}
	return h.target(ctx, parent.id, *number)
}

// forkOne makes one child and brings it up. The caller holds what it gets.
func (h *Host) forkOne(ctx context.Context, parent *vm, id string, from *store.ForkPoint, snap *store.Snapshot, ports []vmm.Port) (*vm, error) {
	hw := parent.hw
	hw.MAC, hw.From, hw.Ports = newMAC(), from, childPorts(parent.hw.Ports, ports)
	child, err := h.add(ctx, id, spec{hw, RestartNo}, parent.bundle, from)
	if err != nil {
		return nil, err
	}
	g, err := h.restore(ctx, bring{id: id, hw: hw, snap: snap, head: 0, fresh: true, ports: hw.Ports})
	if err == nil {
		err = h.adopt(child, g)
	}
	if err != nil {
		err = also(err, h.drop(context.WithoutCancel(ctx), child))
		child.unlock()
		return nil, err
	}
	return child, nil
}

// childPorts gives a child the ports asked for, else its parent's guest ports at host ports of its own.
func childPorts(parent, asked []vmm.Port) []vmm.Port {
	if len(asked) > 0 {
		return asked
	}
	out := make([]vmm.Port, len(parent))
	for i, p := range parent {
		out[i] = vmm.Port{Guest: p.Guest}
	}
	return out
}
