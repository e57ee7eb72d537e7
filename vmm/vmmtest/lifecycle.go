package vmmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"flash/vmm"
)

func (s *suite) probe(t *testing.T) {
	c, err := s.engine.Probe(s.context(t))
	must(t, err)
	again, err := s.engine.Probe(s.context(t))
	must(t, err)
	if c.Facts != again.Facts {
		t.Errorf("two probes give %+v and %+v", c.Facts, again.Facts)
	}
	if c.Facts != s.booted.state.Facts {
		t.Errorf("the probe says %+v, a machine's state says %+v", c.Facts, s.booted.state.Facts)
	}
	if err := s.engine.CanRestore(s.context(t), c.Facts); err != nil {
		t.Errorf("a state of this very host is refused: %v", err)
	}
	v := s.restore(t, s.booted, nil)
	if name := v.Tracker().Name(); name != c.Tracker {
		t.Errorf("the probe promises the tracker %q, a machine has %q", c.Tracker, name)
	}
	for capability, there := range map[string]bool{"lazy pager": c.LazyPager, "shared memory": c.Shared} {
		if !there && len(c.Reasons) == 0 {
			t.Errorf("there is no %s, and no reason is given", capability)
		}
	}
}

func (s *suite) idempotent(t *testing.T) {
	v := s.revive(t, s.booted)
	v.resume()
	v.wants("echo on", "on")
	for range 3 {
		v.quiet(func(context.Context) { v.pause() })
		v.resume()
		v.wants("echo on", "on")
	}
}

func (s *suite) standsStill(t *testing.T) {
	v := s.revive(t, s.booted)
	v.quiet(func(ctx context.Context) {
		now := v.last.memory
		d, err := v.Tracker().Cut(ctx)
		must(t, err)
		now = now.with(t, d)
		d.Rollback()  // the next cut gives it again; only this test looks at it
		for range 3 { // each comparison reads all of memory, which takes its time
			now.mustBe(t, "a paused machine", v.Memory())
		}
	})
	v.wants("echo on", "on")
}

func (s *suite) workingSet(t *testing.T) {
	v := s.revive(t, s.booted)
	touched := v.Touched()
	v.end()
	if touched == nil {
		t.Fatal("a restored machine that ran has touched nothing")
	}
	set := slices.Clone(touched)
	set = append(set, set[0])
	ahead := s.restore(t, s.booted, func(a *vmm.Attach) { a.WorkingSet = set })
	ahead.goOn()
	ahead.wants("echo on", "on")
	if n := ahead.checkpoint(); n.memory.slots != s.booted.memory.slots {
		t.Fatal("the memory has changed its size")
	}
}

func (s *suite) ports(t *testing.T) {
	first := s.restore(t, s.booted, func(a *vmm.Attach) { a.Ports = []vmm.Port{{Guest: port}} })
	first.goOn()
	ctx := s.context(t)
	added, err := first.AddPort(ctx, vmm.Port{Guest: port})
	must(t, err)
	ports := first.Ports()
	if len(ports) != 2 || ports[1] != added {
		t.Fatalf("ports %+v after %+v was added", ports, added)
	}
	for _, p := range ports {
		if p.Guest != port || p.Host == 0 {
			t.Fatalf("port %+v has no host port", p)
		}
	}
	if ports[0].Host == ports[1].Host {
		t.Fatalf("both have host port %d", ports[0].Host)
	}
	second := s.revive(t, s.booted)
	if _, err := second.AddPort(ctx, vmm.Port{Host: added.Host, Guest: port}); err == nil {
		t.Error("two machines got the same host port")
	}
	if s.options.Listen == "" {
		return
	}
	first.run(s.options.Listen)
	for _, p := range ports {
		s.hears(t, p)
	}
	first.quiet(func(context.Context) {})
	s.hears(t, added)
}

// hears connects until the guest says hello: what listens may need a moment.
func (s *suite) hears(t *testing.T, p vmm.Port) {
	t.Helper()
	var last string
	for end := time.Now().Add(s.options.Limit / 4); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", p.Host), time.Second)
		if err != nil {
			last = err.Error()
			continue
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		b, err := io.ReadAll(io.LimitReader(c, 6))
		_ = c.Close()
		if string(b) == "hello\n" {
			return
		}
		last = fmt.Sprintf("%q, %v", b, err)
	}
	t.Fatalf("port %+v: %s", p, last)
}

func (s *suite) incompatible(t *testing.T) {
	ctx := s.context(t)
	for name, change := range map[string]func(*vmm.Facts, string){
		"engine":       func(f *vmm.Facts, v string) { f.Engine = v },
		"version":      func(f *vmm.Facts, v string) { f.Version = v },
		"machine type": func(f *vmm.Facts, v string) { f.MachineType = v },
		"cpu":          func(f *vmm.Facts, v string) { f.CPU = v },
		"accel":        func(f *vmm.Facts, v string) { f.Accel = v },
		"layout":       func(f *vmm.Facts, v string) { f.Layout = v },
	} {
		for _, value := range []string{"another", ""} {
			state := s.booted.state
			change(&state.Facts, value)
			if err := s.engine.CanRestore(ctx, state.Facts); !errors.Is(err, vmm.ErrIncompatible) {
				t.Errorf("CanRestore with %s %q: %v", name, value, err)
			}
			a := s.plug(t, s.booted.disk)
			a.Memory = s.booted.memory
			spec := s.options.Spec
			spec.Facts = state.Facts
			m, err := s.engine.Restore(ctx, spec, a, state)
			if err == nil {
				_ = m.Close()
			}
			if !errors.Is(err, vmm.ErrIncompatible) {
				t.Errorf("Restore with %s %q: %v", name, value, err)
			}
		}
	}
}
