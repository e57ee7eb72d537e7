package host

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func always(r *CreateRequest) { r.Restart = RestartAlways }

// becomes waits for a state that comes by itself.
func (w *world) becomes(id, state string) VM {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		v := w.get(id)
		if v.State == state {
			return v
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s stays %s (%s), want %s", id, v.State, v.Reason, state)
		}
	}
}

// returned gives what the ledger says of a VM's returns.
func (w *world) returned(id string) (all []map[string]string) {
	w.t.Helper()
	entries, err := w.Ledger(w.t.Context(), id)
	w.must(err)
	for _, e := range entries {
		if e.Kind == "restart" {
			var data map[string]string
			w.must(json.Unmarshal(e.Data, &data))
			all = append(all, data)
		}
	}
	return all
}

// awaitReturn waits until the ledger tells of n returns: the guest is there a moment before.
func (w *world) awaitReturn(id string, n int) map[string]string {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if all := w.returned(id); len(all) == n {
			return all[n-1]
		} else if len(all) > n || time.Now().After(end) {
			w.t.Fatalf("%s has returned %d times, want %d", id, len(all), n)
		}
	}
}

func TestAfterAKilledDaemonVMsComeBackAsTheirPolicySays(t *testing.T) {
	w := newWorld(t)
	w.run("a", always)
	w.run("b")
	w.run("fresh", always)
	for _, id := range []string{"a", "b"} {
		w.write(id, "one")
		w.checkpointNow(id, "one")
		w.write(id, "two")
	}
	w.kill()
	w.becomes("a", StateRunning)
	w.holds("a", "one")
	w.pastIs("a", "1<- one*")
	if v := w.is("b", StateCrashed); v.Restart != RestartNo {
		t.Errorf("%+v", v)
	}
	entry := w.awaitReturn("a", 1)
	if entry["policy"] != RestartAlways || !strings.Contains(entry["because"], "the daemon ended") || !strings.Contains(entry["lost"], "after checkpoint 1 of 20") {
		t.Errorf("%v", entry)
	}
	w.becomes("fresh", StateRunning)
	if entry := w.awaitReturn("fresh", 1); !strings.HasPrefix(entry["lost"], "everything") {
		t.Errorf("%v", entry)
	}
	w.kill() // the policy is still known
	w.becomes("a", StateRunning)
	w.holds("a", "one")
	w.awaitReturn("a", 2)
	w.becomes("fresh", StateRunning)
	w.sound("a", "b", "fresh")
}

func TestAKilledMachineComesBackByItself(t *testing.T) {
	w := newWorld(t)
	w.run("a", always)
	w.write("a", "one")
	w.checkpointNow("a", "one")
	for n := 1; n <= 3; n++ { // the second and third after a wait
		w.write("a", "two")
		w.engine.Machines()[0].Crash()
		entry := w.awaitReturn("a", n)
		if !strings.HasPrefix(entry["because"], "killed") {
			t.Errorf("%v", entry)
		}
		w.becomes("a", StateRunning)
		w.holds("a", "one")
		w.watchersEnd()
	}
	w.sound("a")
}

func TestAVMThatTheDaemonStoppedComesBackAndHasLostNothing(t *testing.T) {
	w := newWorld(t)
	w.run("a", always)
	w.run("b")
	w.write("a", "one")
	w.reopen()
	w.becomes("a", StateRunning)
	w.holds("a", "one")
	if entry := w.awaitReturn("a", 1); entry["lost"] != "nothing" {
		t.Errorf("%v", entry)
	}
	w.is("b", StateStopped)
	w.sound("a", "b")
}

func TestWhatEndedByItsUsersOrItsOwnWillStaysAway(t *testing.T) {
	w := newWorld(t)
	w.run("stopped", always)
	w.run("off", always)
	w.stop("stopped")
	w.try("off", "poweroff")
	w.becomes("off", StateStopped)
	w.kill()
	w.is("stopped", StateStopped)
	w.is("off", StateStopped)
	w.reopen()
	w.is("stopped", StateStopped)
	w.is("off", StateStopped)
	if w.returned("stopped") != nil || w.returned("off") != nil {
		t.Error("one has returned")
	}
	w.start("off")
	w.engine.Machines()[0].Crash() // and now against its will
	w.awaitReturn("off", 1)
	w.sound("stopped", "off")
}

func TestAFailedReturnIsToldAndTriedAgainUntilSomebodyStopsIt(t *testing.T) {
	w := newWorld(t)
	w.run("a", always)
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.faults.failStep("restore")
	w.engine.Machines()[0].Crash()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(w.get("a").Reason, notBack); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the failure isn't told: %+v", w.get("a"))
		}
	}
	if v := w.is("a", StateCrashed); strings.Count(v.Reason, notBack) != 1 || !strings.HasPrefix(v.Reason, "killed") {
		t.Errorf("%+v", v)
	}
	w.faults.on(nil)
	w.becomes("a", StateRunning) // the next try, a moment later
	w.awaitReturn("a", 1)
	w.holds("a", "one")

	w.faults.failStep("restore")
	w.engine.Machines()[0].Crash()
	w.becomes("a", StateCrashed)
	w.stop("a")
	w.faults.on(nil)
	w.reopen()
	if v := w.is("a", StateStopped); !strings.HasPrefix(v.Reason, "stopped, after: killed") {
		t.Errorf("%+v", v)
	}
	w.sound("a")
}

func TestAPolicyCanBeChanged(t *testing.T) {
	w := newWorld(t)
	_, err := w.Create(t.Context(), CreateRequest{ID: "a", Bundle: "tiny", MemMiB: tinyMemMiB, Restart: "sometimes"})
	w.fails(err, CodeInvalid)
	w.run("a")
	w.checkpointNow("a", "one")
	w.engine.Machines()[0].Crash()
	w.becomes("a", StateCrashed)
	_, err = w.Update(t.Context(), UpdateRequest{ID: "a", Restart: "sometimes"})
	w.fails(err, CodeInvalid)
	_, err = w.Update(t.Context(), UpdateRequest{ID: "b", Restart: RestartNo})
	w.fails(err, CodeVMNotFound)
	v, err := w.Update(t.Context(), UpdateRequest{ID: "a", Restart: RestartAlways})
	w.must(err)
	if v.Restart != RestartAlways {
		t.Errorf("%+v", v)
	}
	w.awaitReturn("a", 1)
	_, err = w.Update(t.Context(), UpdateRequest{ID: "a", Restart: RestartNo})
	w.must(err)
	w.kill()
	w.is("a", StateCrashed)
	forks, err := w.Fork(t.Context(), ForkRequest{From: "a"})
	w.must(err)
	if forks[0].Restart != RestartNo {
		t.Errorf("a fork has the policy %q", forks[0].Restart)
	}
	w.sound("a", forks[0].ID)
}

func TestAVMThatIsRemovedWhileItIsAwayStaysAway(t *testing.T) {
	w := newWorld(t)
	w.run("a", always)
	w.faults.failStep("boot")
	w.engine.Machines()[0].Crash()
	w.becomes("a", StateCrashed)
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a"}))
	w.faults.on(nil)
	_, err := w.Get(t.Context(), "a")
	w.fails(err, CodeVMNotFound)
	w.sound()
}

func TestReturnsWaitTwiceAsLongUpToALimit(t *testing.T) {
	b := Backoff{}.orDefaults()
	var got []time.Duration
	for n := range 9 {
		got = append(got, b.wait(n)/time.Second)
	}
	want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v seconds", got, want)
		}
	}
	if d := b.wait(1 << 30); d != time.Minute {
		t.Errorf("%v", d)
	}
}
