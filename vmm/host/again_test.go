package host

import (
	"context"
	"testing"
	"time"

	"flash/vmm/guest"
)

func TestTheSameRequestIsAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	create := CreateRequest{RequestID: "c", ID: "a", Bundle: "tiny", MemMiB: tinyMemMiB}
	for range 2 {
		v, err := w.Create(t.Context(), create)
		if err != nil || v.State != StateRunning {
			t.Fatal(v, err)
		}
	}
	for range 2 {
		c, err := w.Checkpoint(t.Context(), CheckpointRequest{RequestID: "r", ID: "a", Label: "one"})
		if err != nil || c.Number != 1 {
			t.Fatal(c, err)
		}
	}
	w.pastIs("a", "1<- one*")
	for range 2 {
		r, err := w.Rewind(t.Context(), RewindRequest{RequestID: "r", ID: "a", Checkpoint: 1})
		if err != nil || r.Saved.Number != 2 {
			t.Fatal(r, err)
		}
	}
	for range 2 {
		vs, err := w.Fork(t.Context(), ForkRequest{RequestID: "r", From: "a", Checkpoint: ptr(1)})
		if err != nil || len(vs) != 1 || vs[0].ID != "a-fork-1" {
			t.Fatal(vs, err)
		}
	}
	// The same id about another VM is another request.
	if c, err := w.Checkpoint(t.Context(), CheckpointRequest{RequestID: "r", ID: "a-fork-1", Label: "child"}); err != nil || c.Label != "child" {
		t.Fatal(c, err)
	}
	w.sound("a", "a-fork-1")
}

func TestAFailedRequestMayBeTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.faults.failStep("save")
	_, err := w.Checkpoint(t.Context(), CheckpointRequest{RequestID: "r", ID: "a"})
	w.fails(err, CodeEngine)
	_, err = w.Exec(t.Context(), ExecRequest{RequestID: "e", ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}, Checkpoint: ptr(true)}, guest.Streams{})
	w.fails(err, CodeEngine)
	w.faults.on(nil)
	if _, err := w.Checkpoint(t.Context(), CheckpointRequest{RequestID: "r", ID: "a"}); err != nil {
		t.Error(err)
	}
	if r, err := w.Exec(t.Context(), ExecRequest{RequestID: "e", ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}, Checkpoint: ptr(true)}, guest.Streams{}); err != nil || r.Checkpoint.Number != 2 {
		t.Error(r, err)
	}
}

// appending is a command that shows how often it has run.
func appending(id string) ExecRequest {
	return ExecRequest{RequestID: id, ID: "a", Checkpoint: ptr(true), Command: guest.ExecRequest{Argv: []string{"sh", "-c", "echo ran >> /root/text; cat /root/text; exit 5"}}}
}

func TestACommandOfOneRequestRunsOnceAndTakesOneCheckpoint(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	for _, id := range []string{"plain-id", "an id that no guest takes: äöü / \n"} {
		w.sh("a", "echo -n > /root/text")
		first, err := w.Exec(t.Context(), appending(id), guest.Streams{})
		w.must(err)
		for range 2 {
			again, err := w.Exec(t.Context(), appending(id), guest.Streams{})
			if err != nil || again.Code != 5 || again.ExecID != first.ExecID || again.Checkpoint == nil ||
				again.Checkpoint.Number != first.Checkpoint.Number || *again.Checkpoint.ExitCode != 5 {
				t.Fatalf("%+v, %v; first %+v", again, err, first)
			}
		}
		w.holds("a", "ran")
		// Not even after a rewind, when the guest knows nothing of it any more.
		w.rewindTo("a", first.Checkpoint.Number)
		if again, err := w.Exec(t.Context(), appending(id), guest.Streams{}); err != nil || again.Code != 5 {
			t.Fatalf("%+v, %v", again, err)
		}
		w.holds("a", "")
	}
	if all, err := w.History(t.Context(), "a"); err != nil || len(all) != 4 { // one each, and what the rewinds left
		t.Errorf("%s, %v", w.past("a"), err)
	}
}

func TestARequestRepeatedWhileItsCommandRunsGoesOnWithIt(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	request := ExecRequest{RequestID: "r", ID: "a", Checkpoint: ptr(true), Command: guest.ExecRequest{
		Argv: []string{"sh", "-c", "echo begun; sleep 0.3; echo over >> /root/text; exit 6"}, KeepOnCancel: true}}
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := w.Exec(ctx, request, guest.Streams{Stdout: writerFunc(func([]byte) { close(begun) })})
		first <- err
	}()
	<-begun
	cancel() // its caller goes away; the command goes on
	w.fails(<-first, CodeCanceled)
	if r, err := w.Exec(t.Context(), request, guest.Streams{}); err != nil || r.Code != 6 || r.Checkpoint == nil || r.Checkpoint.Number != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	w.holds("a", "over")
	all, err := w.History(t.Context(), "a")
	if err != nil || len(all) != 1 || all[0].ExitCode == nil || *all[0].ExitCode != 6 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestAnswersAreForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	a := newAnswers(func() time.Time { return now })
	calls := 0
	do := func() (int, error) { calls++; return calls, nil }
	for _, want := range []int{1, 1, 2} {
		if want == 2 {
			now = now.Add(answerKept + time.Second)
		}
		if got, err := once(t.Context(), a, "verb", "id", do); got != want || err != nil {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
	rs := runs{now: func() time.Time { return now }, known: map[string]*run{}}
	one, first := rs.obtain("a", "r")
	rs.start(one, ExecResult{})
	rs.end(one, ExecResult{}, nil)
	if again, _ := rs.obtain("a", "r"); again != one || !first {
		t.Error("forgotten at once")
	}
	now = now.Add(answerKept + time.Second)
	if _, first := rs.obtain("a", "r"); !first {
		t.Error("never forgotten")
	}
}
