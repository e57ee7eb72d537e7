package bench

import (
	"context"
	"maps"
	"slices"
	"strings"

	"flash/vmm/host"
)

// settle finds out what became of an operation that was cut short, holds it against what was promised – all that was told
// is there, all that wasn't is whole or not there – and brings every VM back.
func (f *family) settle(ctx context.Context) error {
	all, err := f.api().List(ctx)
	if err != nil {
		return f.failed("list: %w", err)
	}
	p := f.pending
	if p == nil {
		p = &pending{target: -1, pin: -1} // a daemon that was stopped
	}
	found := map[string]host.VM{}
	for _, vm := range all {
		if !strings.HasPrefix(vm.ID, f.name+"-") {
			continue
		}
		found[vm.ID] = vm
		if f.vms[vm.ID] != nil {
			continue
		}
		if !slices.Contains(p.forks, vm.ID) {
			return f.failed("there is a VM %s that nobody made", vm.ID)
		}
		point := f.vms[p.vm].at[p.target]
		f.vms[vm.ID] = &witness{id: vm.ID, now: point, at: map[int]memory{0: point}, pinned: map[int]bool{}}
	}
	for _, id := range slices.Sorted(maps.Keys(f.vms)) {
		vm, ok := found[id]
		if !ok && p.remove && p.vm == id {
			delete(f.vms, id)
			continue
		}
		if !ok {
			return f.failed("VM %s is lost", id)
		}
		if err := f.settleVM(ctx, f.vms[id], vm, p); err != nil {
			return err
		}
	}
	return nil
}

func (f *family) settleVM(ctx context.Context, w *witness, vm host.VM, p *pending) error {
	fresh, err := f.compareHistory(ctx, w, p)
	if err != nil {
		return err
	}
	mine := p.vm == w.id
	if vm.Head == nil {
		return f.failed("%s has no head any more; it was %d", w.id, w.head)
	}
	if head := *vm.Head; head != w.head && !slices.Contains(fresh, head) && !(mine && p.forks == nil && head == p.target) {
		return f.failed("the head of %s is %d; it was %d, and of what was under way (%s) came %v", w.id, head, w.head, p.what, fresh)
	}
	w.head = *vm.Head
	if vm.State == host.StateRunning {
		may := []memory{w.now}
		if mine && p.token != "" {
			may = append(may, w.now.with(p.token))
		}
		if mine && p.forks == nil && w.head == p.target {
			may = append(may, w.at[w.head])
		}
		return f.look(ctx, w, may...)
	}
	return f.start(ctx, w)
}

// compareHistory wants every checkpoint that is known, as it was. New ones are the present as it was last known: whatever
// takes them takes them before it changes anything.
func (f *family) compareHistory(ctx context.Context, w *witness, p *pending) (fresh []int, err error) {
	history, err := f.api().History(ctx, w.id)
	if err != nil {
		return nil, f.failed("history of %s: %w", w.id, err)
	}
	there := map[int]host.Checkpoint{}
	for _, c := range history {
		there[c.Number] = c
		if _, known := w.at[c.Number]; !known {
			w.at[c.Number] = w.now
			fresh = append(fresh, c.Number)
		}
		if c.Pinned != w.pinned[c.Number] && !(p.vm == w.id && p.pin == c.Number) {
			return nil, f.failed("checkpoint %d of %s: pinned %v", c.Number, w.id, c.Pinned)
		}
		w.pinned[c.Number] = c.Pinned
	}
	for n := range w.at {
		if _, ok := there[n]; ok {
			continue
		}
		if !p.thin || w.pinned[n] || n == w.head {
			return nil, f.failed("checkpoint %d of %s is lost; under way was %q", n, w.id, p.what)
		}
		delete(w.at, n)
	}
	return fresh, nil
}

// start brings a VM back, and wants its guest to remember what it did at its head.
func (f *family) start(ctx context.Context, w *witness) error {
	w.now = w.at[w.head] // whatever comes of it: what wasn't saved is gone
	vm, err := f.api().Start(ctx, w.id)
	if err != nil {
		return f.failed("start %s: %w", w.id, err)
	}
	if vm.State != host.StateRunning || vm.Head == nil || *vm.Head != w.head {
		return f.failed("start %s: it is %s at %v, its head was %d", w.id, vm.State, vm.Head, w.head)
	}
	f.s.did("start")
	return f.look(ctx, w, w.now)
}
