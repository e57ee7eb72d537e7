package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"flash/vmm"
)

// killProcess ends a process of this test by its identity.
func killProcess(t testing.TB, p vmm.Process) { sendSignal(t, p, syscall.SIGKILL) }
func stopProcess(t testing.TB, p vmm.Process) { sendSignal(t, p, syscall.SIGSTOP) }

func sendSignal(t testing.TB, p vmm.Process, s syscall.Signal) {
	t.Helper()
	if !isStill(p) {
		t.Fatalf("process %+v is another one now", p)
	}
	if err := syscall.Kill(p.PID, s); err != nil {
		t.Fatal(err)
	}
}

// children are the processes this one has, zombies included, by executable.
func children(t testing.TB) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if fields, err := statFields(pid); err == nil && fields[1] == fmt.Sprint(os.Getpid()) {
			list = append(list, fmt.Sprintf("%d %s", pid, fields[0]))
		}
	}
	return list
}

// openFiles counts descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func files(t testing.TB, root string) (list []string) {
	t.Helper()
	filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		if path != root {
			list = append(list, path)
		}
		return nil
	})
	return list
}

func TestFailedStartLeavesNothing(t *testing.T) {
	s := booted(t)
	e := testEngine(t, Config{PoolSize: -1})
	ok := restore(t, e, s, vmm.Attach{Ports: []vmm.Port{{Guest: 80}}}) // also warms what is made only once
	taken := ok.Ports()[0]
	root := shortDir(t)
	attach := func() vmm.Attach {
		return vmm.Attach{Dir: filepath.Join(root, "m"), Console: filepath.Join(root, "log", "console"), Memory: s.memory}
	}
	broken := s.state
	broken.Data = append([]byte(nil), s.state.Data...)
	for i := 100; i < len(broken.Data); i += 7 {
		broken.Data[i] ^= 0x55
	}
	script := filepath.Join(shortDir(t), "mute")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = --version ] && exec qemu-system-x86_64 --version\necho it is broken >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mute := testEngine(t, Config{PoolSize: -1, Binary: script})
	children0, files0 := len(children(t)), openFiles(t)
	for name, c := range map[string]struct {
		start func(vmm.Attach) error
		says  string
	}{
		"port in use": {func(a vmm.Attach) error {
			a.Ports = []vmm.Port{taken}
			_, err := e.Restore(t.Context(), s.spec, a, s.state)
			return err
		}, "port"},
		"broken state": {func(a vmm.Attach) error { _, err := e.Restore(t.Context(), s.spec, a, broken); return err }, "load the state"},
		"port in use at boot": {func(a vmm.Attach) error {
			a.Ports = []vmm.Port{taken}
			_, err := e.Boot(t.Context(), s.spec, a)
			return err
		}, "port"},
		"no kernel": {func(a vmm.Attach) error {
			bad := s.spec
			bad.Kernel = "/nowhere"
			_, err := e.Boot(t.Context(), bad, a)
			return err
		}, "/nowhere"},
		"kernel that is none": {func(a vmm.Attach) error {
			bad := s.spec
			bad.Kernel = script
			_, err := e.Boot(t.Context(), bad, a)
			return err
		}, "last words"},
		"QEMU that ends at once": {func(a vmm.Attach) error { _, err := mute.Boot(t.Context(), s.spec, a); return err }, "it is broken"},
		"console in a file": {func(a vmm.Attach) error {
			a.Console = script + "/x"
			_, err := e.Boot(t.Context(), s.spec, a)
			return err
		}, "console"},
		"folder in a file": {func(a vmm.Attach) error { a.Dir = script + "/x"; _, err := e.Boot(t.Context(), s.spec, a); return err }, "folder"},
	} {
		began := time.Now()
		err := c.start(attach())
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s, after %v: %v", name, time.Since(began).Round(time.Millisecond), err)
		if now := children(t); len(now) != children0 {
			t.Errorf("%s: processes %v", name, now)
		}
		if now := openFiles(t); now != files0 {
			t.Errorf("%s: %d descriptors, were %d", name, now, files0)
		}
		for _, path := range files(t, root) {
			if path != filepath.Join(root, "log") {
				t.Errorf("%s: left %s", name, path)
			}
		}
	}
}

func TestWrongFactsAreRefusedBeforeAnythingStarts(t *testing.T) {
	dir := shortDir(t)
	script, started := filepath.Join(dir, "qemu"), filepath.Join(dir, "started")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = --version ] && exec qemu-system-x86_64 --version\ntouch "+started+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	e := testEngine(t, Config{Binary: script})
	host, err := e.Probe(t.Context())
	if err != nil {
		needVM(t, err.Error())
	}
	state := vmm.State{Data: append([]byte(nil), stateMagic...), Facts: host.Facts}
	spec := vmm.Spec{VCPUs: 1, MemBytes: testMemBytes}
	memory := make(image, testMemBytes/4096)
	older := state
	older.Facts.Version = "7.2.0"
	for name, c := range map[string]struct {
		spec  vmm.Spec
		a     vmm.Attach
		state vmm.State
		says  string
	}{
		"no facts":      {spec, vmm.Attach{Memory: memory}, vmm.State{Data: state.Data}, "missing"},
		"other version": {spec, vmm.Attach{Memory: memory}, older, "QEMU version is 7.2.0 there and " + host.Facts.Version + " here"},
		"other spec":    {vmm.Spec{VCPUs: 1, MemBytes: testMemBytes, Facts: older.Facts}, vmm.Attach{Memory: memory}, state, "isn't the state's"},
		"no memory":     {spec, vmm.Attach{}, state, "no memory"},
		"other memory":  {spec, vmm.Attach{Memory: memory[1:]}, state, "65535 pages"},
		"no state":      {spec, vmm.Attach{Memory: memory}, vmm.State{Facts: host.Facts}, "no state"},
	} {
		if _, err := e.Restore(t.Context(), c.spec, c.a, c.state); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("a process was started")
	}
	if err := e.CanRestore(t.Context(), older.Facts); !errors.Is(err, vmm.ErrIncompatible) {
		t.Errorf("%v", err)
	}
	if err := e.CanRestore(t.Context(), host.Facts); err != nil {
		t.Error(err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := booted(t)
	e := testEngine(t, Config{PoolSize: 1})
	restore(t, e, s, vmm.Attach{}).Close() // warms what is made only once
	waitPool(t, e, 1)
	children0, files0 := len(children(t)), openFiles(t)
	root := shortDir(t)
	for range 3 {
		g := restore(t, e, s, vmm.Attach{Dir: filepath.Join(root, "m"), Ports: []vmm.Port{{Guest: 80}}})
		g.resume()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error("the second time", err)
		}
		if exit := g.Exit(); exit.Reason != "closed" {
			t.Errorf("%+v", exit)
		}
		waitPool(t, e, 1)
	}
	if now := children(t); len(now) != children0 {
		t.Errorf("processes %v", now)
	}
	if now := openFiles(t); now != files0 {
		t.Errorf("%d descriptors, were %d", now, files0)
	}
	if left := files(t, root); left != nil {
		t.Errorf("left %v", left)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if now := children(t); len(now) != children0-1 {
		t.Errorf("after the engine's close there is %v", now)
	}
	if _, err := e.Boot(t.Context(), s.spec, vmm.Attach{}); !errors.Is(err, errEngineClosed) {
		t.Errorf("boot by a closed engine: %v", err)
	}
}

// waitPool waits until as many processes wait.
func waitPool(t testing.TB, e *Engine, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if len(waitingIDs(e)) == want {
			return
		}
	}
	t.Fatalf("%d processes wait, not %d", len(waitingIDs(e)), want)
}

func waitingIDs(e *Engine) (ids []vmm.Process) {
	e.pool.mu.Lock()
	defer e.pool.mu.Unlock()
	for _, w := range e.pool.waiting {
		ids = append(ids, w.id)
	}
	return ids
}

func TestDeadWaitingProcessIsReplaced(t *testing.T) {
	s := booted(t)
	e := testEngine(t, Config{PoolSize: 1})
	restore(t, e, s, vmm.Attach{}).Close()
	waitPool(t, e, 1)
	for range maxDeaths + 1 {
		before := waitingIDs(e)[0]
		killProcess(t, before)
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if ids := waitingIDs(e); len(ids) == 1 && ids[0] != before {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it isn't replaced")
			}
		}
		g := restore(t, e, s, vmm.Attach{}) // takes it
		g.resume()
		g.wants("x", count(2))
		g.Close()
		waitPool(t, e, 1)
	}
}
