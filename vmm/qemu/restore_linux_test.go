package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"flash/vmm"
)

func TestGuestGoesOnOver100Checkpoints(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	g := restore(t, e, s, vmm.Attach{})
	g.resume()
	for i := range 100 {
		s = g.checkpoint(s, nil)
		g.wants("x", count(2+i))
	}
	// What the last of them saved is whole.
	s = g.checkpoint(s, nil)
	g.Close()
	again := restore(t, e, s, vmm.Attach{})
	again.resume()
	again.wants("x", count(102))
}

func TestRestoredMemoryIsTheSavedMemory(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	g := restore(t, e, s, vmm.Attach{})
	g.sameAs(g.asLoaded(s.memory), "before it ran")
	g.resume()
	g.wants("x", count(2))
	s = g.checkpoint(s, nil)
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Everything that changed since is in the next cut.
	delta, err := g.Tracker().Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.memory = s.memory.with(t, collect(delta.Slots()), delta)
	g.sameAs(s.memory, "after checkpoints")
}

func TestCheckpointRightAfterRestoreIsComplete(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	g := restore(t, e, s, vmm.Attach{})
	delta, err := g.Tracker().Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if delta.Len() > 100 {
		t.Errorf("%d pages changed in a machine that hasn't run", delta.Len())
	}
	second := s
	second.memory = s.memory.with(t, collect(delta.Slots()), delta)
	if second.state, err = g.SaveState(t.Context()); err != nil {
		t.Fatal(err)
	}
	twice, err := g.SaveState(t.Context())
	if err != nil || !bytes.Equal(twice.Data, second.state.Data) {
		t.Errorf("saving twice: %v", err)
	}
	delta.Commit()
	g.resume() // goes on although its state was saved before it ever ran
	g.wants("x", count(2))
	again := restore(t, e, second, vmm.Attach{})
	again.resume()
	again.wants("x", count(2))
}

func TestRestoresShareMemoryAndDiverge(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	if c, err := e.Probe(t.Context()); err != nil || !c.Shared {
		t.Skip("memory isn't shared here: ", c.Reasons, err)
	}
	a, b := restore(t, e, s, vmm.Attach{MemoryKey: "one"}), restore(t, e, s, vmm.Attach{MemoryKey: "one"})
	for _, g := range []*guest{a, b} {
		g.resume()
		g.wants("x", count(2))
	}
	a.wants("x", count(3))
	a.wants("x", count(4))
	b.wants("x", count(3))
	if len(a.Touched()) == 0 {
		t.Error("no page of the first was touched")
	}
	rss, pss := residentKiB(t, a.Process().PID)
	t.Logf("resident %d KiB, its share %d KiB; first touched %d pages, second %d", rss, pss, len(a.Touched()), len(b.Touched()))
	if pss >= rss*9/10 {
		t.Errorf("of %d KiB only %d are shared", rss, rss-pss)
	}
}

func residentKiB(t testing.TB, pid int) (rss, pss int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		fmt.Sscanf(line, "Rss: %d kB", &rss)
		fmt.Sscanf(line, "Pss: %d kB", &pss)
	}
	return rss, pss
}

func TestWorkingSetIsThereBeforeTheGuestRuns(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	first := restore(t, e, s, vmm.Attach{})
	first.resume()
	first.wants("x", count(2))
	touched := first.Touched()
	if len(touched) == 0 {
		t.Skip("nothing is recorded: memory isn't lazy here")
	}
	second := restore(t, e, s, vmm.Attach{WorkingSet: touched})
	second.resume()
	second.wants("x", count(2))
	t.Logf("%d pages touched without, %d with the working set", len(touched), len(second.Touched()))
	if len(second.Touched()) > len(touched)/2 {
		t.Errorf("%d pages touched, %d although the working set was brought in", len(touched), len(second.Touched()))
	}
}

func TestPortsReachTheGuest(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	g := restore(t, e, booted(t), vmm.Attach{Ports: []vmm.Port{{Guest: 22}}})
	g.resume()
	g.wants("serve", count(2))
	p, err := g.AddPort(t.Context(), vmm.Port{Guest: 8080})
	if err != nil || p.Host == 0 || p.Guest != 8080 {
		t.Fatalf("%v %v", p, err)
	}
	if ports := g.Ports(); len(ports) != 2 || ports[0].Guest != 22 || ports[0].Host == 0 || ports[1] != p {
		t.Errorf("%v", ports)
	}
	// The guest's netcat may not listen yet; a connection it refuses ends at once.
	said := ""
	for deadline := time.Now().Add(20 * time.Second); said == "" && time.Now().Before(deadline); {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", p.Host), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		buffer := make([]byte, 100)
		n, _ := conn.Read(buffer)
		said = string(buffer[:n])
		conn.Close()
	}
	if said != "hello from the guest\n" {
		t.Errorf("the guest's port says %q", said)
	}
	if _, err := g.AddPort(t.Context(), p); err == nil {
		t.Error("a port in use was given again")
	}
	if _, err := g.AddPort(t.Context(), vmm.Port{Guest: 70000}); err == nil {
		t.Error("port 70000 was published")
	}
}

func TestGuestsEndWithTheirReason(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	s := booted(t)
	for word, want := range map[string]string{"panic": "guest panic", "poweroff": "guest shutdown", "reboot": "guest shutdown"} {
		g := restore(t, e, s, vmm.Attach{})
		g.resume()
		if _, err := fmt.Fprintln(g.Channel(), word); err != nil {
			t.Fatal(err)
		}
		select {
		case <-g.Done():
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the machine is still there", word)
		}
		exit := g.Exit()
		t.Logf("%s: %+v", word, exit)
		if exit.Reason != want || word == "panic" && !strings.Contains(exit.Detail, "sysrq triggered crash") {
			t.Errorf("%s: %+v", word, exit)
		}
		if err := g.Pause(t.Context()); !errors.Is(err, vmm.ErrGone) || !strings.Contains(err.Error(), want) {
			t.Errorf("pause of the ended machine: %v", err)
		}
	}
}

func TestKilledQEMUIsNoticed(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	g := restore(t, e, booted(t), vmm.Attach{})
	g.resume()
	g.wants("x", count(2))
	killProcess(t, g.Process())
	select {
	case <-g.Done():
	case <-time.After(time.Second):
		t.Fatal("a second later the machine isn't done")
	}
	if exit := g.Exit(); exit.Reason != "killed" || exit.Err == nil || !strings.Contains(exit.Detail, "killed") {
		t.Errorf("%+v", exit)
	}
	for what, err := range map[string]error{"pause": g.Pause(t.Context()), "resume": g.Resume(t.Context())} {
		if !errors.Is(err, vmm.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := g.AddPort(t.Context(), vmm.Port{Guest: 80}); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("port: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestStoppedQEMUEndsInTheDeadline(t *testing.T) {
	e := testEngine(t, Config{PoolSize: -1})
	g := restore(t, e, booted(t), vmm.Attach{})
	g.resume()
	g.wants("x", count(2))
	g.Machine.(*machine).in.qmp.deadline = 300 * time.Millisecond
	stopProcess(t, g.Process())
	began := time.Now()
	err := g.Pause(context.Background())
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stopped by a signal") {
		t.Errorf("%v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// A host without userfaultfd and without any page tracking still restores and saves: all memory comes in first, and is
// compared to find what changed.
