package host

import (
	"errors"
	"testing"
	"time"

	"flash/vmm/guest"
)

// A guest whose machine stands still answers nothing; whoever waits for a command in it gets to know in time.
func TestCommandInAGuestThatHangsEndsInTime(t *testing.T) {
	w := newWorld(t)
	w.deadlines.Control = 300 * time.Millisecond
	w.run("a")
	w.engine.Machines()[0].Hang()
	_, err := w.Exec(t.Context(), ExecRequest{ID: "a", Command: guest.ExecRequest{Argv: []string{"true"}}}, guest.Streams{})
	w.fails(err, CodeGuest)
	_, err = w.AttachExec(t.Context(), "a", "e1", guest.Streams{})
	w.fails(err, CodeGuest)
	if _, err := w.Stop(t.Context(), StopRequest{ID: "a", Discard: true}); err != nil {
		t.Fatal(err)
	}
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a"}))
}

// A command may take as long as it likes in a guest that answers, also over checkpoints.
func TestLongCommandIsLeftAloneWhileTheGuestAnswers(t *testing.T) {
	w := newWorld(t)
	w.deadlines.Control = 90 * time.Millisecond
	w.run("a")
	ended := make(chan error, 1)
	go func() {
		_, r, err := w.try("a", "sleep 0.6; exit 3")
		if err == nil && r.Code != 3 {
			err = errors.New("another exit code")
		}
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			w.must(err)
			return
		default:
			w.checkpointNow("a", "beside it")
		}
	}
}
