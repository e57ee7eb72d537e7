package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flash/vmm/guest"
)

// background runs a command whose beginning is waited for, and gives what becomes of it.
func (w *world) background(id, script string) (ended chan error) {
	w.t.Helper()
	begun, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		r, err := w.Exec(w.t.Context(), ExecRequest{ID: id, Command: guest.ExecRequest{Argv: []string{"sh", "-c", "echo begun; " + script}}},
			guest.Streams{Stdout: writerFunc(func([]byte) { once.Do(func() { close(begun) }) })})
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("exit code %d", r.Code)
		}
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		w.t.Fatal(err)
	}
	return ended
}

func TestACommandRunsOnOverACheckpoint(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	ended := w.background("a", "sleep 0.2; echo over > /root/text")
	for range 3 {
		w.checkpointNow("a", "one")
	}
	w.must(<-ended)
	w.holds("a", "over")
	w.sound("a")
}

func TestARewindInterruptsCommandsAndTheyGoOnWhereTheyWere(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	ended := w.background("a", "sleep 0.3; echo over > /root/text")
	w.checkpointNow("a", "one")
	w.must(<-ended)
	w.holds("a", "over")
	w.write("a", "later")
	other := w.background("a", "sleep infinity")
	w.rewindTo("a", 1)
	w.fails(<-other, CodeExecInterrupted)
	// The one that ran at the checkpoint runs again, and can be attached to.
	known, err := w.Execs(t.Context(), "a")
	if err != nil || len(known) != 1 || !known[0].Running {
		t.Fatalf("%+v, %v", known, err)
	}
	if r, err := w.AttachExec(t.Context(), "a", "", guest.Streams{}); err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	w.holds("a", "over")
	w.sound("a")
}

func TestStopAndRemoveInterruptCommands(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	ended := w.background("a", "sleep infinity")
	w.stop("a")
	w.fails(<-ended, CodeExecInterrupted)
	w.start("a")
	ended = w.background("a", "sleep infinity")
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a", Force: true}))
	w.fails(<-ended, CodeExecInterrupted)
	if all, err := w.List(t.Context()); err != nil || len(all) != 0 || len(w.engine.Machines()) != 0 {
		t.Error(all, err)
	}
}

func TestRewindsAtOnceTakeTurns(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.checkpointNow("a", "two")
	failures := make(chan error, 6)
	for i := range 6 {
		go func() {
			_, err := w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 1 + i%2})
			failures <- err
		}()
	}
	for range 6 {
		w.must(<-failures)
	}
	w.sound("a")
	w.holds("a", map[int]string{1: "one", 2: "two"}[*w.get("a").Head])
	if n := w.get("a").Checkpoints; n != 8 {
		t.Errorf("%d checkpoints", n)
	}
}

func TestAVerbThatWaitsTooLongSaysTheVMIsBusy(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	v, err := w.find("a")
	w.must(err)
	unlock, err := w.lock(t.Context(), v, "test")
	w.must(err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = w.Checkpoint(ctx, CheckpointRequest{ID: "a"})
	w.fails(err, CodeVMBusy)
	// Who waits for a VM while it is removed is told that there is none.
	waiting := make(chan error)
	go func() {
		_, err := w.Start(t.Context(), "a")
		waiting <- err
	}()
	w.discard(v, status{Reason: "test"})
	w.must(w.drop(t.Context(), v))
	unlock()
	w.fails(<-waiting, CodeVMNotFound)
}

func TestEverythingAtOnceStaysSound(t *testing.T) {
	w := newWorld(t)
	w.run("a", eachCommand)
	w.write("a", "one")
	w.checkpointNow("a", "base")
	allowed := map[Code]bool{CodeExecInterrupted: true, CodeVMNotRunning: true, CodeVMBusy: true}
	var all sync.WaitGroup
	for name, do := range map[string]func() error{
		"exec": func() error { _, _, err := w.try("a", "echo x > /root/other"); return err },
		"checkpoint": func() error {
			_, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
			return err
		},
		"rewind": func() error { _, err := w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 2}); return err },
		"fork": func() error {
			vs, err := w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(2)})
			if err == nil {
				err = w.Remove(t.Context(), RemoveRequest{ID: vs[0].ID, Force: true})
			}
			return err
		},
		"stop": func() error {
			_, err := w.Stop(t.Context(), StopRequest{ID: "a"})
			if err == nil {
				_, err = w.Start(t.Context(), "a")
			}
			return err
		},
		"look": func() error {
			if _, err := w.List(t.Context()); err != nil {
				return err
			}
			_, err := w.History(t.Context(), "a")
			return err
		},
	} {
		all.Go(func() {
			for range 8 {
				err := do()
				var e *Error
				if err != nil && (!errors.As(err, &e) || !allowed[e.Code]) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	w.start("a")
	w.rewindTo("a", 2)
	w.holds("a", "one")
	w.sound("a")
}
