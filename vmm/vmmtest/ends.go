package vmmtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"flash/vmm"
)

// ended waits for a machine's end.
func (v *machine) ended() vmm.Exit {
	v.t.Helper()
	select {
	case <-v.Done():
	case <-v.suite.context(v.t).Done():
		v.t.Fatal("the machine's end was never told")
	}
	return v.Exit()
}

func (s *suite) damaged(t *testing.T) {
	good := s.booted.state
	for name, data := range map[string][]byte{
		"nothing": nil,
		"half":    good.Data[:len(good.Data)/2],
		"noise":   []byte(strings.Repeat("not a state ", 100)),
	} {
		a := s.plug(t, s.booted.disk)
		a.Memory = s.booted.memory
		spec := s.options.Spec
		spec.Facts = good.Facts
		m, err := s.engine.Restore(s.context(t), spec, a, vmm.State{Data: data, Facts: good.Facts})
		if err == nil {
			_ = m.Close()
			t.Errorf("a state of %s was taken", name)
		}
	}
	// And it doesn't harm what comes after.
	s.revive(t, s.booted).wants("echo on", "on")
}

func (s *suite) canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := s.plug(t, s.booted.disk)
	a.Memory = s.booted.memory
	spec := s.options.Spec
	spec.Facts = s.booted.state.Facts
	began := time.Now()
	m, err := s.engine.Restore(ctx, spec, a, s.booted.state)
	if err == nil {
		_ = m.Close()
		t.Error("a restore whose context had ended succeeded")
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("the error isn't the context's: %v", err)
	}
	if took := time.Since(began); took > s.options.Limit/4 {
		t.Errorf("it took %v", took)
	}
	left(t, a)
}

func (s *suite) shutdown(t *testing.T) {
	v := s.revive(t, s.booted)
	must(t, v.client.Shutdown(s.context(t)))
	if exit := v.ended(); exit.Reason != "guest shutdown" {
		t.Errorf("exit %+v", exit)
	}
	if err := v.Resume(s.context(t)); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("resume of a machine that has shut down: %v", err)
	}
}

func (s *suite) death(t *testing.T) {
	v := s.revive(t, s.booted)
	switch {
	case s.options.Kill != nil:
		s.options.Kill(v.Machine)
	case v.Process().PID > 0:
		p, err := os.FindProcess(v.Process().PID)
		must(t, err)
		must(t, p.Kill())
	default:
		t.Skip("the machine has no process, and Options.Kill isn't given")
	}
	if exit := v.ended(); exit.Reason != "killed" || exit.Detail == "" {
		t.Errorf("exit %+v", exit)
	}
	for name, do := range map[string]func(context.Context) error{
		"pause":  v.Pause,
		"resume": v.Resume,
		"save":   func(ctx context.Context) error { _, err := v.SaveState(ctx); return err },
	} {
		if err := do(s.context(t)); !errors.Is(err, vmm.ErrGone) {
			t.Errorf("%s of a dead machine: %v", name, err)
		}
	}
	if err := v.client.SyncFS(s.context(t)); err == nil {
		t.Error("a dead machine's guest answered")
	}
	s.revive(t, s.booted).wants("echo on", "on") // what it came from is unharmed
}

func (s *suite) close(t *testing.T) {
	for name, prepare := range map[string]func(v *machine){
		"that never ran":      func(*machine) {},
		"that runs":           func(v *machine) { v.goOn() },
		"that is paused":      func(v *machine) { v.goOn(); v.quiet(func(context.Context) {}); v.pause() },
		"that was just saved": func(v *machine) { v.cut(s.context(t)) },
	} {
		v := s.restore(t, s.booted, nil)
		prepare(v)
		if p := v.Process(); p.PID > 0 && p.Start == 0 {
			t.Errorf("process %d has no start time, so it can't be told from another", p.PID)
		}
		if v.client != nil {
			must(t, v.client.Close())
		}
		must(t, v.Close())
		must(t, v.Close())
		if exit := v.ended(); exit.Reason != "closed" {
			t.Errorf("a machine %s: exit %+v", name, exit)
		}
		if n, err := v.Channel().Read(make([]byte, 1)); err == nil {
			t.Errorf("a machine %s: its channel gave %d bytes", name, n)
		}
		if err := v.Pause(s.context(t)); !errors.Is(err, vmm.ErrGone) {
			t.Errorf("a machine %s: pause after close: %v", name, err)
		}
		left(t, v.attach)
	}
}

// left checks that nothing is in the machine's folder.
func left(t *testing.T, a vmm.Attach) {
	t.Helper()
	entries, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left behind", e.Name())
	}
}
