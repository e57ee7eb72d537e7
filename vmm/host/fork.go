package host

import (
	"context"
	"errors"
	"fmt"

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
	return once(ctx, h.answers, "fork", r.RequestID, func() ([]VM, error) { return h.fork(ctx, r) })
}

func (h *Host) fork(ctx context.Context, r ForkRequest) ([]VM, error) {
	parent, err := h.find(r.From)
	if err != nil {
		return nil, err
	}
	if r.Count == 0 {
		r.Count = max(1, len(r.IDs))
	}
	if r.Count < 1 || r.Count > maxForkCount {
		return nil, Errorf(CodeInvalid, fmt.Sprintf("give --count from 1 to %d", maxForkCount), "%d children is not from 1 to %d", r.Count, maxForkCount)
	}
	if len(r.IDs) > r.Count {
		return nil, Errorf(CodeInvalid, "give as many names as --count, or fewer", "%d names for %d children", len(r.IDs), r.Count)
	}
	if err := checkPorts(r.Ports); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, id := range r.IDs {
		if err := checkID(id); err != nil {
			return nil, err
		}
		names[id] = true
	}
	for len(r.IDs) < r.Count {
		id := h.freeName(parent.id, names)
		names[id] = true
		r.IDs = append(r.IDs, id)
	}
	if r.Checkpoint == nil {
		now, err := h.Checkpoint(ctx, CheckpointRequest{ID: parent.id, Label: "before fork"})
		if err != nil {
			return nil, err
		}
		r.Checkpoint = &now.Number
	}
	entry, snap, err := h.target(ctx, parent.id, *r.Checkpoint)
	if err != nil {
		return nil, err
	}
	from := &store.ForkPoint{VM: parent.id, Number: entry.Number}
	children := make([]*vm, r.Count)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(forksAtOnce)
	for i, id := range r.IDs {
		group.Go(func() (err error) {
			children[i], err = h.forkOne(groupCtx, parent, id, from, snap, r.Ports)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, child := range children {
			if child != nil { // it came up, but has nothing of its own yet
				h.discard(child, "a sibling didn't come up")
				err = errors.Join(err, h.drop(context.WithoutCancel(ctx), child))
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

func (h *Host) forkOne(ctx context.Context, parent *vm, id string, from *store.ForkPoint, snap *store.Snapshot, ports []vmm.Port) (*vm, error) {
	hw := parent.hw
	hw.MAC, hw.From, hw.Ports = newMAC(), from, childPorts(parent.hw.Ports, ports)
	child, err := h.add(ctx, id, hw, parent.record.Bundle, from)
	if err != nil {
		return nil, err
	}
	g, err := h.restore(ctx, bring{id: id, hw: hw, snap: snap, head: 0, fresh: true, ports: hw.Ports})
	if err == nil {
		err = h.adopt(ctx, child, g)
	}
	if err != nil {
		return nil, errors.Join(err, h.drop(context.WithoutCancel(ctx), child))
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
