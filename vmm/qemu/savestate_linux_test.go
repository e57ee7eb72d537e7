package qemu

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"flash/memtrack"
	"flash/vmm"
)

// fakeMachine is one whose QEMU is played by the peer. It is never ended.
func fakeMachine(t *testing.T, now phase) (*machine, *peer) {
	t.Helper()
	q, p := fakeMonitor(t, time.Minute, nil)
	return &machine{in: &instance{qmp: q}, phase: now, done: make(chan struct{})}, p
}

// answer waits for a command and replies with a status.
func (p *peer) answer(command, status string) {
	name, id := p.hear()
	if name != command {
		p.t.Errorf("the command is %s, not %s", name, command)
	}
	p.say(`{"return": {"status": %q}, "id": %d}`, status, id)
}

// The migration's end is told before the run state has changed; a cont in between leaves the guest stopped for ever.
func TestNothingFollowsAMigrationBeforeItsRunState(t *testing.T) {
	m, p := fakeMachine(t, paused)
	m.unsettled = true
	ended := make(chan error, 1)
	go func() { ended <- m.Resume(t.Context()) }()
	for range 3 {
		p.answer("query-status", "finish-migrate")
		p.answer("query-migrate", "completed")
		p.answer("query-status", "finish-migrate")
	}
	p.answer("query-status", "finish-migrate")
	p.answer("query-migrate", "completed")
	p.answer("query-status", "postmigrate")
	p.answer("cont", "") // nothing before
	if err := <-ended; err != nil || m.unsettled || m.now() != running {
		t.Errorf("%v, unsettled %v, phase %v", err, m.unsettled, m.now())
	}
}

// A migration whose end wasn't seen may still be going on, may have failed, or may never have begun.
func TestUnseenMigrationIsWaitedFor(t *testing.T) {
	m, p := fakeMachine(t, paused)
	m.unsettled = true
	ended := make(chan error, 1)
	go func() { ended <- m.Resume(t.Context()) }()
	p.answer("query-status", "paused")
	p.answer("query-migrate", "active")
	p.answer("query-status", "paused")
	p.answer("query-migrate", "failed")
	p.answer("query-status", "paused")
	p.answer("cont", "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A pause that got no answer must not leave a guest that the host takes for running.
func TestUnansweredPauseIsTakenBack(t *testing.T) {
	m, p := fakeMachine(t, running)
	m.in.qmp.deadline = 20 * time.Millisecond
	if err := m.Pause(t.Context()); err == nil || m.now() != running {
		t.Errorf("%v, phase %v", err, m.now())
	}
	for _, want := range []string{"stop", "cont"} {
		if name, _ := p.hear(); name != want {
			t.Errorf("%s came, not %s", name, want)
		}
	}
}

func TestUnansweredResumeCanBePaused(t *testing.T) {
	m, p := fakeMachine(t, paused)
	m.in.qmp.deadline = 20 * time.Millisecond
	if err := m.Resume(t.Context()); err == nil {
		t.Error("no answer, no error")
	}
	p.hear()
	m.in.qmp.deadline = time.Minute
	go p.answer("stop", "")
	if err := m.Pause(t.Context()); err != nil || m.now() != paused {
		t.Errorf("%v, phase %v", err, m.now())
	}
}

func TestStepsOutOfOrderAreRefused(t *testing.T) {
	for now, name := range map[phase]string{fresh: "fresh", running: "running"} {
		m, _ := fakeMachine(t, now)
		if _, err := m.SaveState(t.Context()); err == nil {
			t.Errorf("the state of a %s machine was saved", name)
		}
	}
	// And what is so already needs no step.
	m, _ := fakeMachine(t, paused)
	if err := m.Pause(t.Context()); err != nil {
		t.Error(err)
	}
	m, _ = fakeMachine(t, running)
	if err := m.Resume(t.Context()); err != nil {
		t.Error(err)
	}
}

// Memory and state are one instant: what is written in between makes the checkpoint fail, and the guest goes on.
func TestPageWrittenAfterTheCutFailsTheSave(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	g := restore(t, e, s, vmm.Attach{})
	g.resume()
	g.wants("x", count(2))
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	delta, err := g.Tracker().Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	span := g.Memory().(*guestMemory).Span()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", span.PID), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	page := make([]byte, memtrack.PageBytes)
	if err := g.Memory().View(t.Context(), []uint64{100}, page); err != nil { // also brings it in
		t.Fatal(err)
	}
	if _, err := mem.WriteAt(page, int64(span.Address(100))); err != nil {
		t.Fatal(err)
	}
	if _, err := g.SaveState(t.Context()); err != nil {
		t.Fatal(err)
	}
	if late, err := g.Tracker().Pending(t.Context()); err != nil || late == 0 {
		t.Errorf("a page written after the cut: %d pending, %v", late, err)
	}
	delta.Rollback()
	g.resume()
	g.wants("x", count(3))
	s = g.checkpoint(s, nil) // reports what was rolled back
	again := restore(t, e, s, vmm.Attach{})
	again.resume()
	again.wants("x", count(4))
}

func TestEngineEndsForgottenMachines(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	g := restore(t, e, booted(t), vmm.Attach{})
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if !hasEnded(g.Done()) || g.Exit().Reason != "closed" {
		t.Errorf("%+v", g.Exit())
	}
	if err := g.Resume(t.Context()); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%v", err)
	}
}
