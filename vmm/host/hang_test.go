package host

import (
	"context"
	"slices"
	"testing"
	"time"

	"flash/vmm/guest"
)

// hanging gives a world with short deadlines, whose VM a does nothing any more.
func hanging(t *testing.T) *world {
	w := newWorld(t)
	w.must(w.Close(t.Context()))
	w.open(quick)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.engine.Machines()[0].Hang()
	return w
}

func TestAGuestThatHangsIsToldInTimeByEveryVerb(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, w *world) error{
		"checkpoint": func(ctx context.Context, w *world) error {
			_, err := w.Checkpoint(ctx, CheckpointRequest{ID: "a"})
			return err
		},
		"rewind": func(ctx context.Context, w *world) error {
			_, err := w.Rewind(ctx, RewindRequest{ID: "a", Checkpoint: 1})
			return err
		},
		"stop": func(ctx context.Context, w *world) error {
			_, err := w.Stop(ctx, StopRequest{ID: "a"})
			return err
		},
		"fork": func(ctx context.Context, w *world) error { _, err := w.Fork(ctx, ForkRequest{From: "a"}); return err },
		"exec": func(ctx context.Context, w *world) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := w.Exec(ctx, ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}}, guest.Streams{})
			return err
		},
		"exec with a checkpoint": func(ctx context.Context, w *world) error {
			_, err := w.Exec(ctx, ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}, Checkpoint: ptr(true)}, guest.Streams{})
			return err
		},
		"cp": func(ctx context.Context, w *world) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			return w.CopyOut(ctx, "a", "/root", writerFunc(func([]byte) {}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := hanging(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			w.fails(do(ctx, w), CodeGuest)
			if ctx.Err() != nil {
				t.Fatal("not in time")
			}
			w.is("a", StateRunning)
			// What the error advises.
			_, err := w.Stop(t.Context(), StopRequest{ID: "a", Discard: true})
			w.must(err)
			w.start("a")
			w.holds("a", "one")
			w.sound("a")
		})
	}
}

func TestAHangingGuestDoesNotKeepTheDaemonFromEnding(t *testing.T) {
	w := hanging(t)
	w.run("b")
	w.write("b", "kept")
	w.fails(w.Close(t.Context()), CodeGuest)
	w.open(Deadlines{})
	w.is("a", StateStopped)
	w.start("b")
	w.holds("b", "kept")
}

func TestACancelledCommandIsKilled(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	for code, end := range map[Code]func(context.Context) (context.Context, context.CancelFunc){
		CodeDeadline: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		CodeCanceled: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := end(t.Context())
		_, err := w.Exec(ctx, ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"sleep", "infinity"}}}, guest.Streams{})
		cancel()
		w.fails(err, code)
	}
	runs := func(e guest.ExecInfo) bool { return e.Running }
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // the guest knows a moment after the kill
		known, err := w.Execs(t.Context(), "a")
		w.must(err)
		if len(known) == 2 && !slices.ContainsFunc(known, runs) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", known)
		}
	}
}

func TestAWorkloadLeftFrozenIsThawedByTheNextCommand(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.faults.failStep("repair") // which thaws
	_, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
	w.fails(err, CodeGuest)
	w.faults.on(nil)
	w.write("a", "one")
	w.holds("a", "one")
}

func TestAMachineThatCantBeResumedIsACrashedOne(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.faults.failStep("resume")
	_, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
	w.fails(err, CodeGuestCrashed)
	w.is("a", StateCrashed)
	w.faults.on(nil)
	w.start("a")
	w.holds("a", "one")
}
