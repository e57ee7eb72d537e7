package host

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestStartGoesOnExactlyWhereStopEnded(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	before := w.sh("a", "cat /proc/sys/kernel/random/boot_id")
	if v := w.stop("a"); v.State != StateStopped || v.Reason != "stopped" {
		t.Errorf("%+v", v)
	}
	w.sound("a")
	w.stop("a") // again is no error
	w.pastIs("a", "1<- before stop*")
	if v := w.start("a"); v.State != StateRunning || !strings.Contains(v.Notice, "checkpoint 1") {
		t.Errorf("%+v", v)
	}
	w.start("a") // again is no error, and no second guest
	w.holds("a", "one")
	if w.sh("a", "cat /proc/sys/kernel/random/boot_id") != before {
		t.Error("it was booted anew")
	}
	w.pastIs("a", "1<- before stop*")
	w.sound("a")
}

func TestADiscardedPresentIsGone(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	_, err := w.Stop(t.Context(), StopRequest{ID: "a", Discard: true})
	w.must(err)
	w.pastIs("a", "1<- one*")
	w.start("a")
	w.holds("a", "one")
	w.sound("a")
}

func TestACrashIsKnownAtOnceAndStartResumes(t *testing.T) {
	for name, end := range map[string]func(*world){
		"killed":         func(w *world) { w.engine.Machines()[0].Crash() },
		"guest panic":    func(w *world) { w.engine.Machines()[0].Panic("out of luck") },
		"guest shutdown": func(w *world) { w.try("a", "poweroff") },
	} {
		t.Run(strings.ReplaceAll(name, " ", ""), func(t *testing.T) {
			w := newWorld(t)
			w.run("a")
			w.write("a", "one")
			w.checkpointNow("a", "one")
			w.write("a", "two")
			v, err := w.find("a")
			w.must(err)
			first := w.running(v)
			end(w)
			state := StateCrashed
			if name == "guest shutdown" {
				state = StateStopped
			}
			if v := w.is("a", state); !strings.HasPrefix(v.Reason, name) {
				t.Errorf("%+v", v)
			}
			_, err = w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
			w.fails(err, CodeVMNotRunning)
			_, _, err = w.try("a", "true")
			w.fails(err, CodeVMNotRunning)
			w.start("a")
			w.holds("a", "one")
			w.watchersEnd()
			w.noteEnd(v, first)
			w.is("a", StateRunning) // what the end of the first guest said late changes nothing
			w.sound("a")
		})
	}
}

// watchersEnd waits until only the guests that run are watched.
func (w *world) watchersEnd() {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); len(w.engine.Machines()) > 1; time.Sleep(time.Millisecond) { // a watcher closes its machine
		if time.Now().After(end) {
			w.t.Fatal("the end of a guest isn't settled")
		}
	}
}

func TestAVMWithoutCheckpointIsBootedAnew(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.engine.Machines()[0].Crash()
	if v := w.start("a"); !strings.Contains(v.Notice, "booted anew") {
		t.Errorf("%+v", v)
	}
	if out, r, err := w.try("a", "cat /root/text"); err != nil || r.Code == 0 {
		t.Errorf("%q %v %v", out, r, err)
	}
}

func TestACrashDuringACommandIsToldAsOne(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	_, _, err := w.try("a", "crash")
	w.fails(err, CodeGuestCrashed)
	w.is("a", StateCrashed)
}

func TestADaemonThatWasKilledLeavesCrashedVMsThatGoOn(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.run("b")
	w.stop("b")
	w.kill()
	if v := w.is("a", StateCrashed); !strings.Contains(v.Reason, "daemon") {
		t.Errorf("%+v", v)
	}
	w.is("b", StateStopped)
	w.sound("a", "b")
	w.start("a")
	w.holds("a", "one")
	w.everyVerbWorks("a")
}

func TestADaemonThatEndedCleanlyLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.run("b", eachCommand)
	w.reopen()
	if v := w.is("a", StateStopped); v.Reason != "the daemon was stopped" {
		t.Errorf("%+v", v)
	}
	w.pastIs("a", "1<- before the daemon stopped*")
	w.start("a")
	w.holds("a", "one")
	w.everyVerbWorks("a")
	if v := w.start("b"); !v.EachCommand {
		t.Errorf("%+v", v)
	}
}

// everyVerbWorks does everything once to a VM that runs.
func (w *world) everyVerbWorks(id string) {
	w.t.Helper()
	ctx := w.t.Context()
	w.write(id, "before")
	n := w.checkpointNow(id, "verbs").Number
	w.write(id, "after")
	w.rewindTo(id, n)
	w.holds(id, "before")
	_, err := w.Fork(ctx, ForkRequest{From: id, Checkpoint: &n, IDs: []string{"verbs"}})
	w.must(err)
	w.holds("verbs", "before")
	_, err = w.Pin(ctx, id, n, true)
	w.must(err)
	_, err = w.Diff(ctx, DiffRequest{ID: id, From: n})
	w.must(err)
	w.stop(id)
	w.start(id)
	w.holds(id, "before")
	w.must(w.Remove(ctx, RemoveRequest{ID: "verbs", Force: true}))
	w.is(id, StateRunning)
}

func TestCloseEndsWhatItCantSave(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.faults.failStep("cut")
	err := w.Close(context.Background())
	w.faults.on(nil)
	w.fails(err, CodeEngine)
	if err == nil || len(w.engine.Machines()) != 0 {
		t.Fatalf("%v, %d machines", err, len(w.engine.Machines()))
	}
	w.open(Deadlines{})
	if v := w.is("a", StateStopped); !strings.Contains(v.Reason, "couldn't be saved") {
		t.Errorf("%+v", v)
	}
	w.start("a")
	w.holds("a", "one")
}

func TestAClosedHostRefuses(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.must(w.Close(t.Context()))
	_, err := w.Get(t.Context(), "a")
	w.fails(err, CodeDaemon)
	_, err = w.Create(t.Context(), CreateRequest{ID: "b", Bundle: "tiny", MemMiB: tinyMemMiB})
	w.fails(err, CodeDaemon)
	w.must(w.Close(t.Context()))
}
