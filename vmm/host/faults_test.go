package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// verb is an operation that changes a VM, as the loops below fail it.
type verb struct {
	prepare func(w *world)       // nil: the VM runs
	do      func(w *world) error // on the VM a, whose checkpoint 1 holds "base"
	ends    string               // what a holds after it has succeeded: "base", "now"
	state   string               // of a after it has succeeded
	extra   func(w *world) []string
	cleanUp func(w *world)
}

var verbs = map[string]verb{
	"checkpoint": {do: func(w *world) error {
		_, err := w.Checkpoint(w.t.Context(), CheckpointRequest{ID: "a", Label: "verb"})
		return err
	}, ends: "now", state: StateRunning},
	"exec": {do: func(w *world) error {
		out, r, err := w.try("a", "echo ran") // a was run with checkpoints
		if err == nil && (r.Code != 0 || r.Checkpoint == nil || out == "") {
			err = fmt.Errorf("%+v %q", r, out)
		}
		return err
	}, ends: "now", state: StateRunning},
	"rewind": {do: func(w *world) error {
		_, err := w.Rewind(w.t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
		return err
	}, ends: "base", state: StateRunning},
	"stop": {do: func(w *world) error {
		_, err := w.Stop(w.t.Context(), StopRequest{ID: "a"})
		return err
	}, ends: "now", state: StateStopped},
	"start": {prepare: func(w *world) { w.stop("a") }, do: func(w *world) error {
		_, err := w.Start(w.t.Context(), "a")
		return err
	}, ends: "now", state: StateRunning},
	"rewind of a stopped VM": {prepare: func(w *world) { w.stop("a") }, do: func(w *world) error {
		_, err := w.Rewind(w.t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
		return err
	}, ends: "base", state: StateRunning},
	"fork": {do: func(w *world) error {
		_, err := w.Fork(w.t.Context(), ForkRequest{From: "a", Count: 2, IDs: []string{"b", "c"}})
		return err
	}, ends: "now", state: StateRunning, extra: func(w *world) []string {
		w.holds("b", w.now)
		w.holds("c", w.now)
		return []string{"b", "c"}
	}, cleanUp: func(w *world) {
		for _, id := range []string{"b", "c"} {
			w.must(w.Remove(context.Background(), RemoveRequest{ID: id, Force: true}))
		}
	}},
}

// failing runs a verb again and again, failing the nth of something for n = 1, 2, 3 … until that isn't reached any more.
// After each failure the VM must be as it was, and after each success as it should be.
func failing(t *testing.T, arm func(w *world, n int) (disarm func() string)) {
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run("a", eachCommand)
			w.quiet(func() { w.write("a", "base") })
			w.checkpointNow("a", "base")
			failures := 0
			for n := 1; ; n++ {
				w.now = fmt.Sprintf("now-%d", n)
				w.quiet(func() { w.write("a", w.now) })
				if verb.prepare != nil {
					verb.prepare(w)
				}
				state, past := w.get("a").State, w.past("a")
				disarm := arm(w, n)
				err := verb.do(w)
				step := disarm()
				ids := []string{"a"}
				if err == nil {
					w.is("a", verb.state)
					if verb.extra != nil {
						ids = append(ids, verb.extra(w)...)
					}
				} else {
					failures++
					if step == "" {
						t.Fatalf("n=%d: nothing was made to fail, and %v", n, err)
					}
					var e *Error
					if !errors.As(err, &e) {
						t.Fatalf("n=%d: %v is no *Error", n, err)
					}
					w.fails(err, e.Code)
					w.is("a", state)
				}
				w.sound(ids...)
				if bare := func(s string) string { return strings.ReplaceAll(s, "*", "") }; !strings.HasPrefix(bare(w.past("a")), bare(past)) {
					t.Fatalf("n=%d: the history was %s and is %s", n, past, w.past("a"))
				}
				if v := w.get("a"); v.State != StateRunning {
					w.start("a")
				}
				want := w.now
				if err == nil && verb.ends == "base" {
					want = "base"
				}
				w.quiet(func() { w.holds("a", want) })
				if err == nil && verb.cleanUp != nil {
					verb.cleanUp(w)
				}
				if step == "" {
					t.Logf("%d of %d failed", failures, n-1)
					if failures < 3 || err != nil {
						t.Fatalf("only %d failures; the last: %v", failures, err)
					}
					return
				}
			}
		})
	}
}

// quiet does something without checkpoints.
func (w *world) quiet(do func()) {
	v, err := w.find("a")
	w.must(err)
	v.hw.EachCommand = false
	do()
	v.hw.EachCommand = true
}

func TestAFailedStepOfTheEngineLeavesTheVMAsItWas(t *testing.T) {
	failing(t, func(w *world, n int) func() string {
		w.faults.arm(n)
		return w.faults.disarm
	})
}

func TestAFailedOperationOfTheStoreLeavesTheVMAsItWas(t *testing.T) {
	failing(t, func(w *world, n int) func() string {
		before := w.chunks.Ops()
		w.chunks.FailAt(n, errStore)
		return func() string {
			reached := w.chunks.Ops() >= before+n
			w.chunks.FailAt(0, nil)
			if !reached {
				return ""
			}
			return "the store's"
		}
	})
}

var errStore = errors.New("the disk has a bad day")
