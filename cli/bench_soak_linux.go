package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"flash/bench"
	"flash/cli/httpapi"
	"flash/vmm/host"
	"flash/vmm/qemu"
)

// daemonPlace is a home whose lives are daemons: processes of this program.
type daemonPlace struct {
	home   string
	client *httpapi.Client // nil: no life
}

func newDaemonPlace(home string) (bench.Place, error) { return &daemonPlace{home: home}, nil }

// Open starts a daemon, unless one runs.
func (p *daemonPlace) Open(ctx context.Context) (host.API, error) {
	if p.client == nil {
		p.client = httpapi.NewClient(socketPath(p.home))
	}
	return p.client, startDaemon(ctx, p.home, p.client)
}

func (p *daemonPlace) endClient() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

func (p *daemonPlace) Kill(context.Context) error {
	defer p.endClient()
	return killProcesses(p.home, processesOf(p.home))
}

func (p *daemonPlace) Stop(ctx context.Context) error {
	defer p.endClient()
	if err := endInOrder(ctx, p.home, p.client, shutdownLimit); err != nil {
		return err
	}
	// It has let go of the home; its process ends a moment later. What hasn't ended by then is a leftover.
	for deadline := time.Now().Add(exitLimit); len(processesOf(p.home)) > 0 && time.Now().Before(deadline); {
		select {
		case <-time.After(5 * time.Millisecond): // a process that isn't our child can only be asked for
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// exitLimit is how long a daemon that has closed everything may take to be gone.
const exitLimit = 10 * time.Second

func (p *daemonPlace) KillMachine(_ context.Context, vm host.VM) error {
	return killMachine(p.home, vm.PID)
}

// What a daemon at rest may hold more at the end of a long life: what caches and the pool of waiting machines fill.
const (
	mayGrowHeapBytes  = 128 << 20                  // the node cache has 64 MiB; Go's collector lets garbage lie
	mayGrowMemory     = mayGrowHeapBytes + 256<<20 // arenas for changed pages, which are kept for reuse
	mayGrowMachines   = 6                          // as many wait as were asked for at once lately: 8 at most, 2 at first
	mayGrowGoroutines = 8 + 4*mayGrowMachines      // four for each that waits
	mayGrowDescribers = 8 + 3*mayGrowMachines      // of a kind
	mayGrowPacks      = 64                         // of packs and of the database: the store has grown
)

func (p *daemonPlace) Census(ctx context.Context) ([]bench.Count, error) {
	dump, err := p.client.Debug(ctx, host.DebugRequest{What: "process"})
	if err != nil {
		return nil, err
	}
	facts := map[string]int64{}
	for _, f := range dump.Facts {
		if facts[f.Name], err = strconv.ParseInt(f.Value, 10, 64); err != nil {
			return nil, fmt.Errorf("the daemon's %s: %w", f.Name, err)
		}
	}
	var where []string
	for _, row := range dump.Rows[:min(20, len(dump.Rows))] {
		where = append(where, strings.Join(row, " "))
	}
	pid := int(facts["pid"])
	counts := []bench.Count{
		{Name: "goroutines", Value: facts["goroutines"], MayGrow: mayGrowGoroutines, Detail: ": " + strings.Join(where, "; ")},
		{Name: "heap bytes", Value: facts["heap bytes"], MayGrow: mayGrowHeapBytes},
		{Name: "bytes of the Go runtime", Value: facts["system bytes"], MayGrow: mayGrowHeapBytes},
	}
	anonymous, err := anonymousBytes(pid)
	if err != nil {
		return nil, err
	}
	counts = append(counts, bench.Count{Name: "anonymous memory bytes", Value: anonymous, MayGrow: mayGrowMemory})
	machines := int64(0)
	for _, q := range processesOf(p.home) {
		if q.machine {
			machines++
		}
	}
	counts = append(counts, bench.Count{Name: "machine processes", Value: machines, MayGrow: mayGrowMachines})
	kinds, err := p.descriptors(pid)
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"socket", "pipe", "memory file", "anonymous", "store file", "file"} {
		c := bench.Count{Name: "descriptors: " + kind, Value: int64(len(kinds[kind])), MayGrow: mayGrowDescribers}
		if kind == "store file" {
			c.MayGrow = mayGrowPacks
		} else {
			c.Detail = ": " + strings.Join(kinds[kind], " ")
		}
		counts = append(counts, c)
	}
	return counts, nil
}

// anonymousBytes is a process's RssAnon (proc(5)): memory that is nobody else's and no file's.
func anonymousBytes(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc says nothing of RssAnon")
}

// descriptors sorts what a daemon has open.
func (p *daemonPlace) descriptors(pid int) (map[string][]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	kinds := map[string][]string{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		kind := "file"
		switch {
		case strings.HasPrefix(to, "socket:"):
			kind = "socket"
		case strings.HasPrefix(to, "pipe:"):
			kind = "pipe"
		case strings.HasPrefix(to, "/memfd:"):
			kind = "memory file"
		case strings.HasPrefix(to, "anon_inode:"):
			kind = "anonymous"
		case slices.ContainsFunc([]string{"packs", "index", "meta"}, func(part string) bool { return strings.HasPrefix(to, filepath.Join(p.home, part)+"/") }):
			kind = "store file"
		}
		kinds[kind] = append(kinds[kind], to)
	}
	return kinds, nil
}

// halfMade are files that only something that is going on, or was killed, has.
var halfMade = []string{"scratch/*", "boot/new-*", ".s*", "packs/*.tmp", "index/*.tmp"}

func (p *daemonPlace) Leftovers(context.Context) ([]string, error) {
	left := map[string]bool{}
	for _, q := range processesOf(p.home) {
		left[q.String()] = true
	}
	run := runDir(p.home)
	for _, group := range qemu.Leftovers(filepath.Base(run), 0) {
		left["control group "+group] = true
	}
	patterns := []string{run, socketPath(p.home), filepath.Join("/dev/shm", "*"+filepath.Base(run)+"*")}
	for _, name := range halfMade {
		patterns = append(patterns, filepath.Join(p.home, name))
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			left[name] = true
		}
	}
	return slices.Sorted(maps.Keys(left)), nil
}
