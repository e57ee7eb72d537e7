package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"

	"flash/cli/httpapi"
	"flash/vmm/guest"
	"flash/vmm/host"
)

// converse connects our streams, terminal and signals with a command and passes its exit code on.
func (a *app) converse(ctx context.Context, tty, stdin bool, run func(context.Context, guest.Streams, guest.WindowSize) (host.ExecResult, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var s guest.Streams
	if stdin {
		s.Stdin = a.stdin
	}
	out := &output{stdout: a.stdout, stderr: a.stderr, json: a.json}
	s.Stdout, s.Stderr = out.stream("stdout"), out.stream("stderr")

	var size guest.WindowSize
	if tty {
		t, err := a.rawTerminal()
		if err != nil {
			return notRun{err}
		}
		defer t.restore()
		size, s.Resize = t.size, t.resize
	}
	signals, stop := forwardSignals(func() { cancel(errImpatient) })
	defer stop()
	s.Signals = signals

	res, err := run(ctx, s, size)
	if err != nil && context.Cause(ctx) == errImpatient {
		a.say("flash: the command was killed with all it had started, for it didn't obey %d interrupts", impatience)
		return exitStatus(128 + 2) // as if it had died of the signal
	}
	if err != nil {
		if !out.any() && res.ExecID == "" && !errors.Is(err, httpapi.ErrWentAway) {
			return notRun{err}
		}
		return err
	}
	if err := out.end(res); err != nil {
		return err
	}
	if res.TimedOut && !a.json {
		a.say("flash: the command was killed: it took longer than its --timeout")
	}
	if res.Code != 0 {
		return exitStatus(res.Code)
	}
	return nil
}

// output is where a command's streams go: ours, or lines of JSON.
type output struct {
	stdout, stderr io.Writer
	json           bool

	mu   sync.Mutex // guards the rest; held over a JSON line, which must not interleave
	some bool
}

func (o *output) stream(name string) io.Writer { return outputStream{o, name} }

func (o *output) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.some
}

// end gives the last line of JSON.
func (o *output) end(res host.ExecResult) error {
	if !o.json {
		return nil
	}
	return json.NewEncoder(o.stdout).Encode(httpapi.EndOf(res))
}

type outputStream struct {
	o    *output
	name string
}

func (s outputStream) Write(p []byte) (int, error) {
	o := s.o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.some = true
	switch {
	case o.json:
		err := json.NewEncoder(o.stdout).Encode(httpapi.OutputLine{Stream: s.name, Data: p})
		return len(p), err
	case s.name == "stderr":
		return o.stderr.Write(p)
	}
	return o.stdout.Write(p)
}

// impatience is how many interrupts make us stop waiting for the command to obey.
const impatience = 3

var errImpatient = errors.New("interrupted again and again")

// forwardSignals gives the signals we get to the command. Too many interrupts cancel, which kills it.
func forwardSignals(giveUp func()) (<-chan string, func()) {
	got := make(chan os.Signal, 8)
	names := make(chan string, 8)
	done := make(chan struct{})
	notifySignals(got)
	var wg sync.WaitGroup
	wg.Go(func() {
		interrupts := 0
		for {
			select {
			case sig := <-got:
				if sig == os.Interrupt {
					interrupts++
				}
				if interrupts >= impatience {
					giveUp()
				}
				select {
				case names <- signalName(sig):
				default: // the command isn't there yet, and has enough waiting for it
				}
			case <-done:
				return
			}
		}
	})
	return names, func() { signal.Stop(got); close(done); wg.Wait() }
}
