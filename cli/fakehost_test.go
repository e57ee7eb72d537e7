package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"flash/cas"
	"flash/store"
	"flash/vmm"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// fakeHost is a host.API in memory: enough of one to tell whether the doors say what they should. A guest is a map of
// files; its commands are in fakeguest_test.go.
type fakeHost struct {
	mu      sync.Mutex // guards the rest; not held while a command runs
	vms     map[string]*fakeVM
	bundles []host.Bundle
	home    string
	// Faults, for the demo's own checks.
	rewindForgetsFiles, rewindForgetsMemory, rewindRemoves  bool
	forksShareRandomness, forkIsTheParent, neverCheckpoints bool
	random                                                  int
}

type fakeVM struct {
	host.VM
	world   world
	history []host.Checkpoint
	saved   map[int]world
	ledger  []store.LedgerEntry
	head    int // -1: none
	next    int
}

func newFakeHost(home string) *fakeHost { return &fakeHost{vms: map[string]*fakeVM{}, home: home} }

func (h *fakeHost) Close() error { return nil }

func (h *fakeHost) vm(id string) (*fakeVM, error) {
	if v, ok := h.vms[id]; ok {
		return v, nil
	}
	return nil, host.Errorf(host.CodeVMNotFound, "flash ps lists them", "there is no VM %s", id)
}

func (v *fakeVM) view() host.VM {
	vm := v.VM
	vm.Checkpoints = len(v.history)
	if v.head >= 0 {
		vm.Head = new(int)
		*vm.Head = v.head
	}
	return vm
}

func (v *fakeVM) note(kind string, data any) {
	p, _ := json.Marshal(data)
	v.ledger = append(v.ledger, store.LedgerEntry{Seq: uint64(len(v.ledger) + 1), Time: time.Now(), Kind: kind, Data: p})
}

func (v *fakeVM) checkpoint(label string, pin bool) *host.Checkpoint {
	cp := host.Checkpoint{Number: v.next, Label: label, Created: time.Now(), Pinned: pin, Head: true, NewBytes: 2048}
	if v.head >= 0 {
		parent := v.head
		cp.Parent = &parent
	}
	for i := range v.history {
		v.history[i].Head = false
	}
	v.history = append(v.history, cp)
	v.saved[cp.Number] = v.world.clone()
	v.head = cp.Number
	v.next++
	v.note("checkpoint", cp)
	cp.Timing = &host.Timing{PauseMicros: 4200, Pages: 3}
	return &cp
}

func (v *fakeVM) find(n int) (*host.Checkpoint, error) {
	for i := range v.history {
		if v.history[i].Number == n {
			return &v.history[i], nil
		}
	}
	return nil, host.Errorf(host.CodeCheckpointNotFound, "flash history "+v.ID+" lists them", "%s has no checkpoint %d", v.ID, n)
}

func (h *fakeHost) Create(_ context.Context, r host.CreateRequest) (host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.vms[r.ID]; ok {
		return host.VM{}, host.Errorf(host.CodeVMExists, "choose another --id, or flash rm "+r.ID, "there is a VM %s already", r.ID)
	}
	if !slices.ContainsFunc(h.bundles, func(b host.Bundle) bool { return b.Name == r.Bundle }) {
		return host.VM{}, host.Errorf(host.CodeBundleNotFound, "flash bundle ls lists them", "there is no bundle %s", r.Bundle)
	}
	v := &fakeVM{VM: host.VM{ID: r.ID, State: "running", Bundle: r.Bundle, VCPUs: max(1, r.VCPUs), MemMiB: r.MemMiB, Created: time.Now(),
		EachCommand: r.Checkpoints, Ports: r.Ports}, world: newWorld(), saved: map[int]world{}, head: -1, next: 1}
	v.note("created", r)
	h.vms[r.ID] = v
	return v.view(), nil
}

func (h *fakeHost) Fork(_ context.Context, r host.ForkRequest) ([]host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parent, err := h.vm(r.From)
	if err != nil {
		return nil, err
	}
	n := parent.head
	if r.Checkpoint != nil {
		n = *r.Checkpoint
	} else {
		n = parent.checkpoint("fork", false).Number
	}
	if _, err := parent.find(n); err != nil {
		return nil, err
	}
	var made []host.VM
	for i := range max(1, r.Count) {
		id := fmt.Sprintf("%s-fork-%d", r.From, i+1)
		if i < len(r.IDs) {
			id = r.IDs[i]
		}
		from := &store.ForkPoint{VM: r.From, Number: n}
		v := &fakeVM{VM: parent.VM, world: parent.saved[n].clone(), saved: map[int]world{0: parent.saved[n]}, head: 0, next: 1}
		v.ID, v.From, v.Ports, v.Notice = id, from, nil, "open connections are dead"
		v.history = []host.Checkpoint{{Number: 0, Label: "fork point", Created: time.Now(), Head: true, From: from}}
		if h.forkIsTheParent {
			v.world.files = parent.world.files
		}
		v.note("fork_point", from)
		h.vms[id] = v
		made = append(made, v.view())
	}
	return made, nil
}

func (h *fakeHost) List(context.Context) ([]host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []host.VM
	for _, id := range slices.Sorted(maps.Keys(h.vms)) {
		all = append(all, h.vms[id].view())
	}
	return all, nil
}

func (h *fakeHost) Get(_ context.Context, id string) (host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return host.VM{}, err
	}
	return v.view(), nil
}

func (h *fakeHost) Rewind(_ context.Context, r host.RewindRequest) (host.RewindResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return host.RewindResult{}, err
	}
	if _, err := v.find(r.Checkpoint); err != nil {
		return host.RewindResult{}, err
	}
	saved := v.checkpoint(fmt.Sprintf("before rewind to %d", r.Checkpoint), false)
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
	for i := range v.history {
		v.history[i].Head = v.history[i].Number == r.Checkpoint
	}
	v.note("rewind", r)
	v.Notice = "open connections are dead"
	return host.RewindResult{VM: v.view(), Saved: saved}, nil
}

func (h *fakeHost) setState(id, state string) (host.VM, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return host.VM{}, err
	}
	v.State = state
	return v.view(), nil
}

func (h *fakeHost) Start(_ context.Context, id string) (host.VM, error) {
	return h.setState(id, "running")
}

func (h *fakeHost) Stop(_ context.Context, r host.StopRequest) (host.VM, error) {
	return h.setState(r.ID, "stopped")
}

func (h *fakeHost) Remove(_ context.Context, r host.RemoveRequest) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return err
	}
	if v.State == "running" && !r.Force {
		return host.Errorf(host.CodeVMRunning, "flash stop "+r.ID+" first, or --force", "%s is running", r.ID)
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

func (h *fakeHost) Checkpoint(_ context.Context, r host.CheckpointRequest) (host.Checkpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return host.Checkpoint{}, err
	}
	return *v.checkpoint(r.Label, r.Pin), nil
}

func (h *fakeHost) Pin(_ context.Context, id string, n int, pinned bool) (host.Checkpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return host.Checkpoint{}, err
	}
	cp, err := v.find(n)
	if err != nil {
		return host.Checkpoint{}, err
	}
	cp.Pinned = pinned
	return *cp, nil
}

func (h *fakeHost) Diff(_ context.Context, r host.DiffRequest) (host.Diff, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(r.ID)
	if err != nil {
		return host.Diff{}, err
	}
	to := v.next - 1
	if r.To != nil {
		to = *r.To
	}
	for _, n := range []int{r.From, to} {
		if _, err := v.find(n); err != nil {
			return host.Diff{}, err
		}
	}
	d := host.Diff{From: r.From, To: to, MemoryPages: 3, DiskBlocks: 1}
	a, b := v.saved[r.From].files, v.saved[to].files
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if old, ok := a[name]; !ok {
			d.Files = append(d.Files, host.FileChange{Path: name, Change: "added", Bytes: int64(len(b[name]))})
		} else if old != b[name] {
			d.Files = append(d.Files, host.FileChange{Path: name, Change: "modified", Bytes: int64(len(b[name]))})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			d.Files = append(d.Files, host.FileChange{Path: name, Change: "removed", Bytes: int64(len(a[name]))})
		}
	}
	return d, nil
}

func (h *fakeHost) Ledger(_ context.Context, id string) ([]store.LedgerEntry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(v.ledger), nil
}

func (h *fakeHost) Logs(ctx context.Context, id string, follow bool, w io.Writer) error {
	if _, err := h.Get(ctx, id); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "Linux version 6.1\nflash agent is up\n"); err != nil || !follow {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *fakeHost) RemoveCheckpoint(_ context.Context, id string, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.vm(id)
	if err != nil {
		return err
	}
	cp, err := v.find(n)
	if err != nil {
		return err
	}
	if cp.Head || cp.Pinned {
		return host.Errorf(host.CodeVMPinned, "unpin it", "checkpoint %d of %s must stay", n, id)
	}
	v.history = slices.DeleteFunc(v.history, func(c host.Checkpoint) bool { return c.Number == n })
	return nil
}

func (h *fakeHost) GC(_ context.Context, r host.GCRequest) (host.GCReport, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	report := host.GCReport{GCReport: store.GCReport{Applied: r.Apply, Removed: []store.RemovedCheckpoint{}, Snapshots: 2}, Rules: map[string]store.Retention{}}
	report.Sweep = cas.SweepStats{Packs: 1, LiveChunks: 10, LiveBytes: 40 << 10, DeadChunks: 5, DeadBytes: 20 << 10}
	report.Freed = 20 << 10
	if r.Retention != nil {
		for _, v := range h.vms {
			for _, c := range v.history[:max(0, len(v.history)-r.Retention.KeepLast)] {
				report.Removed = append(report.Removed, store.RemovedCheckpoint{VM: v.ID, Number: c.Number, Label: c.Label, Created: c.Created, NewBytes: c.NewBytes})
			}
		}
		if r.Save {
			report.Rules[""] = *r.Retention
		}
	}
	report.Settings.GCOff = r.Background != nil && !*r.Background
	return report, nil
}

// Check finds one thing, by how much is read.
func (h *fakeHost) Check(_ context.Context, r host.CheckRequest) (store.CheckReport, error) {
	report := store.CheckReport{Snapshots: 2, Nodes: 3, Chunks: 4, Records: 5, Findings: []store.Finding{}}
	if r.Read == 0 {
		return report, host.Errorf(host.CodeNothingChecked, "is it the right --home?", "nothing was checked")
	}
	report.Read = cas.VerifyStats{Packs: 1, Records: 9, Bytes: 1 << 20}
	f := store.Finding{Severity: store.Harmless, Kind: "chunk", Pack: "ab.pack", Offset: 64, Hash: cas.Hash{1}, Reason: "its bytes hash to another name", Touches: []store.Name{}}
	switch {
	case r.Repair:
		report.Repair = &cas.RepairStats{Packs: 1, Quarantined: []string{"ab.pack.quarantine"}, Salvaged: 8, LostRecords: 1}
		f.Severity, f.Touches = store.Damage, []store.Name{{VM: "a", Number: 1}, {Bundle: "d", Number: -1}}
		fallthrough
	case r.Read == 1:
		report.Findings, report.Worst = append(report.Findings, f), f.Severity
	}
	return report, nil
}

func (h *fakeHost) Debug(_ context.Context, r host.DebugRequest) (host.DebugDump, error) {
	return host.DebugDump{Facts: []host.Fact{{Name: "what", Value: r.What}, {Name: "its name", Value: r.Name}}, Columns: []string{"\tOFFSET", "HASH"},
		Rows: [][]string{{"64", "ab"}, {"4096", "cd"}}}, nil
}

func (h *fakeHost) Bundles(context.Context) ([]host.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.bundles), nil
}

func (h *fakeHost) addBundle(name, source string, diskMiB int, progress func(host.Progress)) (host.Bundle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	progress(host.Progress{Step: "root disk", Done: 1, Total: 2, Unit: "files"})
	progress(host.Progress{Step: "store", Done: 4096, Total: 4096, Unit: "bytes"})
	b := host.Bundle{Name: name, Created: time.Now(), DiskMiB: max(64, diskMiB), NewBytes: 3 << 20, Source: source}
	h.bundles = append(h.bundles, b)
	return b, nil
}

func (h *fakeHost) BuildBundle(_ context.Context, r host.BuildRequest, progress func(host.Progress)) (host.Bundle, error) {
	if r.Kind != "busybox" && r.Kind != "debian" {
		return host.Bundle{}, host.Errorf(host.CodeInvalid, "the kinds are busybox, debian", "there is no kind %q", r.Kind)
	}
	if r.Name == "" {
		r.Name = r.Kind
	}
	if progress == nil {
		progress = func(host.Progress) {}
	}
	return h.addBundle(r.Name, "build "+r.Kind, r.DiskMiB, progress)
}

func (h *fakeHost) ImportBundle(_ context.Context, r host.ImportRequest, progress func(host.Progress)) (host.Bundle, error) {
	if _, err := os.Stat(r.Path); err != nil {
		return host.Bundle{}, host.Errorf(host.CodeInvalid, "give a path the daemon can read", "import: %w", err)
	}
	if progress == nil {
		progress = func(host.Progress) {}
	}
	return h.addBundle(r.Name, "import "+r.Path, r.DiskMiB, progress)
}

func (h *fakeHost) RemoveBundle(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.bundles)
	h.bundles = slices.DeleteFunc(h.bundles, func(b host.Bundle) bool { return b.Name == name })
	if len(h.bundles) == n {
		return host.Errorf(host.CodeBundleNotFound, "flash bundle ls lists them", "there is no bundle %s", name)
	}
	return nil
}

func (h *fakeHost) Info(context.Context) (host.Info, error) {
	return host.Info{Version: "fake", PID: os.Getpid(), Home: h.home, Capabilities: vmm.Capabilities{
		Facts: vmm.Facts{Engine: "fake", Version: "1", MachineType: "paper", CPU: "one", Accel: "tcg"}, Tracker: "hash-compare",
		Reasons: map[string]string{"kvm": "the CPU has no virtualisation", "lazy": "no userfaultfd"}}}, nil
}

func (h *fakeHost) Execs(ctx context.Context, id string) ([]guest.ExecInfo, error) {
	if _, err := h.Get(ctx, id); err != nil {
		return nil, err
	}
	return []guest.ExecInfo{{ID: "e1", Argv: []string{"sleep", "100"}, Running: true}, {ID: "e2", Argv: []string{"false"}, Exit: &guest.ExitStatus{Code: 1}}}, nil
}
