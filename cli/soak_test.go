package cli

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"flash/bench"
	"flash/vmm"
	"flash/vmm/fake"
	"flash/vmm/host"
)

var (
	soakSeed = flag.Uint64("soak-seed", 0, "seed of the soak; 0: another one each time")
	soakFor  = flag.Duration("soak-for", 3*time.Second, "how long the soak over the fake engine is")
)

// hostPlace is a home whose lives are hosts over the fake engine in this process.
type hostPlace struct {
	home   string
	parts  *parts
	engine *fake.Engine
	broken []string // what the engine saw that must never happen
}

func (p *hostPlace) Open(ctx context.Context) (_ host.API, err error) {
	p.engine = fake.New(fake.Config{})
	p.parts, err = openParts(ctx, p.home, slog.New(slog.DiscardHandler), func(string, *slog.Logger) (vmm.Engine, error) { return p.engine, nil })
	if err != nil {
		return nil, err
	}
	if bundles, err := p.parts.host.Bundles(ctx); err != nil || len(bundles) > 0 {
		return p.parts.host, err
	}
	_, err = fakeBuilder{p.parts.host, p.parts.store}.BuildBundle(ctx, host.BuildRequest{Kind: "busybox"}, nil)
	return p.parts.host, err
}

// Kill crashes every machine at the same moment. What can't be had within a process is a store that isn't closed; that is
// the daemons' soak's.
func (p *hostPlace) Kill(ctx context.Context) error {
	if p.parts == nil {
		return nil
	}
	for _, m := range p.engine.Machines() {
		m.Crash()
	}
	p.Stop(ctx) // it may complain of machines that have crashed under it
	return nil
}

func (p *hostPlace) Stop(context.Context) error {
	err := p.parts.Close()
	p.parts = nil
	p.broken = append(p.broken, p.engine.Violations()...)
	return err
}

func (p *hostPlace) KillMachine(context.Context, host.VM) error {
	panic("the guest has a command for it")
}

func (p *hostPlace) Census(ctx context.Context) ([]bench.Count, error) {
	dump, err := p.parts.host.Debug(ctx, host.DebugRequest{What: "process"})
	if err != nil {
		return nil, err
	}
	detail := ""
	for _, row := range dump.Rows {
		detail += "\n" + row[0] + " " + row[1]
	}
	return []bench.Count{
		{Name: "goroutines", Value: int64(runtime.NumGoroutine()), MayGrow: 8, Detail: detail},
		{Name: "machines", Value: int64(len(p.engine.Machines()))},
	}, nil
}

func (p *hostPlace) Leftovers(context.Context) ([]string, error) {
	left := p.broken
	for _, pattern := range append([]string{runDir(p.home)}, filepath.Join(p.home, "scratch/*"), filepath.Join(p.home, "boot/new-*")) {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		left = append(left, found...)
	}
	return left, nil
}

func TestNothingIsForgottenOrLeakedInASoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	again := fmt.Sprintf("again: go test ./cli -run '^%s$' -soak-seed %d -soak-for %s", t.Name(), seed, *soakFor)
	t.Log(again)
	home, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	r, err := bench.Soak(t.Context(), bench.SoakConfig{Place: &hostPlace{home: home}, Guest: bench.FakeGuest, Bundle: "busybox", MemMiB: 128, VMs: 6, For: *soakFor, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Failures {
		t.Errorf("%s\n%s", f, again)
	}
	for _, l := range r.Leaks {
		t.Errorf("leak: %s\n%s", l, again)
	}
	for _, op := range []string{"exec", "checkpoint", "start", "stop", "kill of daemon and machines", "stop of the daemon"} { // others are rarer: a slow machine may have none
		if r.Operations[op] == 0 && !t.Failed() {
			t.Errorf("not one %s among %v", op, r.Operations)
		}
	}
	t.Logf("%d comparisons; done %v, cut short %v", r.Looks, r.Operations, r.Cut)
}
