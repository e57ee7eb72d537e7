package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"flash/store"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// fakeHost is what demos need of a host.API, in memory, with faults that a real host must not have: a demo must fail on
// them. Its guests understand the scripts of demo 21 only. Every other method is nil.
type fakeHost struct {
	host.API
	mu      sync.Mutex // guards the rest
	vms     map[string]*fakeVM
	bundles []host.Bundle
	random  int

	rewindForgetsFiles, rewindForgetsMemory, rewindRemoves  bool
	forksShareRandomness, forkIsTheParent, neverCheckpoints bool
}

type fakeVM struct {
	host.VM
	world   world
	history []host.Checkpoint
	saved   map[int]world
	head    int // -1: none
	next    int
}

// world is a fake guest: files by path, and what its processes remember.
type world struct {
	files   map[string]string
	session string // what the demo's session knows; "": it doesn't run
}

func (w world) clone() world {
	w.files = maps.Clone(w.files)
	return w
}

func newFakeHost() *fakeHost { return &fakeHost{vms: map[string]*fakeVM{}} }

func (h *fakeHost) Close() error { return nil }

func (h *fakeHost) vm(id string) (*fakeVM, error) {
	if v, ok := h.vms[id]; ok {
		return v, nil
	}
	return nil, host.Errorf(host.CodeVMNotFound, "flash ps lists them", "there is no VM %s", id)
}

func (v *fakeVM) checkpoint(label string) *host.Checkpoint {
	cp := host.Checkpoint{Number: v.next, Label: label, Created: time.Now(), NewBytes: 2048}
	if v.head >= 0 {
		parent := v.head
		cp.Parent = &parent
	}
	v.history = append(v.history, cp)
	v.saved[cp.Number] = v.world.clone()
	v.head = cp.Number
	v.next++
	return &cp
}

func (h *fakeHost) Create(_ context.Context, r host.CreateRequest) (host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &fakeVM{VM: host.VM{ID: r.ID, State: "running", Bundle: r.Bundle, EachCommand: r.Checkpoints},
		world: world{files: map[string]string{}}, saved: map[int]world{}, head: -1, next: 1}
	h.vms[r.ID] = v
	return v.VM, nil
}

func (h *fakeHost) Fork(_ context.Context, r host.ForkRequest) ([]host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parent, err := h.vm(r.From)
	if err != nil {
		return nil, err
	}
	n := *r.Checkpoint
	var made []host.VM
	for _, id := range r.IDs {
		v := &fakeVM{VM: parent.VM, world: parent.saved[n].clone(), saved: map[int]world{0: parent.saved[n]}, head: 0, next: 1}
		v.ID, v.From = id, &store.ForkPoint{VM: r.From, Number: n}
		if h.forkIsTheParent {
			v.world.files = parent.world.files
		}
		h.vms[id] = v
		made = append(made, v.VM)
	}
	return made, nil
}

func (h *fakeHost) List(context.Context) ([]host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []host.VM
	for _, id := range slices.Sorted(maps.Keys(h.vms)) {
		all = append(all, h.vms[id].VM)
	}
	return all, nil
}

func (h *fakeHost) Rewind(_ context.Context, r host.RewindRequest) (host.RewindResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return host.RewindResult{}, err
	}
	saved := v.checkpoint(fmt.Sprintf("before rewind to %d", r.Checkpoint))
	old := v.world
	v.world, v.head = v.saved[r.Checkpoint].clone(), r.Checkpoint
	if h.rewindForgetsFiles {
		v.world.files = old.files
	}
	if h.rewindForgetsMemory {
		v.world.session = old.session
	}
	if h.rewindRemoves {
		v.history = slices.DeleteFunc(v.history, func(cp host.Checkpoint) bool { return cp.Number > r.Checkpoint })
	}
	return host.RewindResult{VM: v.VM, Saved: saved}, nil
}

func (h *fakeHost) Remove(_ context.Context, r host.RemoveRequest) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.vm(r.ID); err != nil {
		return err
	}
	delete(h.vms, r.ID)
	return nil
}

func (h *fakeHost) History(_ context.Context, id string) ([]host.Checkpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(v.history), nil
}

func (h *fakeHost) Bundles(context.Context) ([]host.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.bundles), nil
}

func (h *fakeHost) BuildBundle(_ context.Context, r host.BuildRequest, _ func(host.Progress)) (host.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := host.Bundle{Name: r.Kind, Created: time.Now(), NewBytes: 3 << 20}
	h.bundles = append(h.bundles, b)
	return b, nil
}

func (h *fakeHost) Exec(_ context.Context, r host.ExecRequest, s guest.Streams) (host.ExecResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return host.ExecResult{}, err
	}
	res := host.ExecResult{}
	if v.EachCommand && !h.neverCheckpoints {
		label, _ := json.Marshal(r.Command.Argv)
		res.Checkpoint = v.checkpoint(string(label))
	}
	var out string
	out, res.Code = h.demoScript(&v.world, r.Command.Argv[2])
	fmt.Fprintln(s.Stdout, out)
	return res, nil
}

// demoScript does what demo 21's scripts do in a real guest.
func (h *fakeHost) demoScript(w *world, script string) (string, int) {
	const program = "/work/project/price.sh"
	fix, has := w.files[program]
	switch script {
	case scriptProject:
		w.files[program] = "buggy"
	case scriptSession, scriptAsk:
		if script == scriptSession {
			h.random++
			w.session = fmt.Sprint("known-", h.random)
		}
		return w.session, map[bool]int{true: 0, false: 143}[w.session != ""]
	case scriptTests:
		switch {
		case !has:
			return "sh: can't open 'run-tests.sh'", 2
		case fix == "rounds":
			return "ok", 0
		}
		return "FAIL " + fix, 1
	case scriptMistake:
		delete(w.files, program)
		w.session = ""
	case scriptSum:
		return "sum of " + fix, 0
	case fixTruncates:
		w.files[program] = "truncates"
	case fixRounds:
		w.files[program] = "rounds"
	case scriptRandom:
		if !h.forksShareRandomness {
			h.random++
		}
		return fmt.Sprint("uuid-", h.random), 0
	}
	return "", 0
}

var _ io.Closer = (*fakeHost)(nil)
