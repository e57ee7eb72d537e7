package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"time"

	"flash/vmm/guest"
	"flash/vmm/host"
)

const (
	demoExecTimeout  = 2 * time.Minute // a command under emulation, its checkpoint included
	demoCleanTimeout = 2 * time.Minute
	demoBundle       = "busybox"
)

// stage is where a demo plays: it does, times, tells and checks every step, and remembers the VMs to remove.
type stage struct {
	api  host.API
	out  io.Writer // for a human; discards with --json
	id   string    // prefix of this play's VMs
	vms  []string
	took []demoStep
}

// demoStep is a step that held, or the last one, that didn't.
type demoStep struct {
	Step       string `json:"step"`
	TookMillis int64  `json:"took_ms"`
	Found      string `json:"found,omitempty"`
	Error      string `json:"error,omitempty"`
}

type demoReport struct {
	Demo  int        `json:"demo"`
	OK    bool       `json:"ok"`
	Steps []demoStep `json:"steps"`
}

// playDemo plays d. The VMs are removed whatever happens, also when it is interrupted.
func (a *app) playDemo(ctx context.Context, api host.API, d demo, keep bool) error {
	ctx, stop := signal.NotifyContext(ctx, endSignals...)
	defer stop()
	s := &stage{api: api, out: a.stdout, id: fmt.Sprintf("demo-%d-%s", d.Number, strings.ToLower(rand.Text()[:5]))}
	if a.json {
		s.out = io.Discard
	}
	begun := time.Now()
	s.tell("demo %d: %s\n", d.Number, d.Tells)
	err := d.play(ctx, api, s)
	if keep {
		s.tell("\nkept: %s", strings.Join(s.vms, " "))
	} else {
		err = errors.Join(err, s.clean(ctx))
	}
	if a.json {
		if pErr := a.printJSON(demoReport{d.Number, err == nil, s.took}); pErr != nil || err == nil {
			return pErr
		}
		return exitStatus(1) // the report has said it
	}
	if err != nil {
		return err
	}
	s.tell("\nevery step held, in %s", time.Since(begun).Round(100*time.Millisecond))
	return nil
}

func (s *stage) tell(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// step does one thing, and tells what was found and how long it took, or that it failed.
func (s *stage) step(title string, do func() (found string, err error)) error {
	begun := time.Now()
	found, err := do()
	took := time.Since(begun)
	done := demoStep{Step: title, TookMillis: took.Milliseconds(), Found: found}
	if err != nil {
		done.Error = err.Error()
		s.took = append(s.took, done)
		s.tell("✗ %s", title)
		return fmt.Errorf("demo: %s: %w", title, err)
	}
	s.took = append(s.took, done)
	s.tell("✓ %-62s %7s", title, took.Round(time.Millisecond))
	for line := range strings.Lines(found) {
		s.tell("    %s", strings.TrimRight(line, "\n"))
	}
	return nil
}

// ran is what came of a command in a VM.
type ran struct {
	host.ExecResult
	out string // stdout and stderr as they came, without the last newline
}

// sh runs a script in a VM.
func (s *stage) sh(ctx context.Context, vm, script string) (ran, error) {
	var out bytes.Buffer
	res, err := s.api.Exec(ctx, host.ExecRequest{
		ID:      vm,
		Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}, Timeout: demoExecTimeout},
	}, guest.Streams{Stdout: &out, Stderr: &out})
	if err == nil && res.TimedOut {
		err = fmt.Errorf("%q took longer than %s", script, demoExecTimeout)
	}
	return ran{res, strings.TrimRight(out.String(), "\n")}, err
}

// expect fails unless what was claimed holds.
func expect(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("it doesn't hold that "+format, args...)
}

// clean removes the play's VMs, also after ctx has ended; the youngest first.
func (s *stage) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoCleanTimeout)
	defer cancel()
	var errs []error
	for _, id := range slices.Backward(s.vms) {
		if err := s.api.Remove(ctx, host.RemoveRequest{ID: id, Force: true}); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up: %w", err))
		}
	}
	return errors.Join(errs...)
}

// needBundle builds the bundle that demos boot from, unless it is there. It stays: others use it too.
func (s *stage) needBundle(ctx context.Context) error {
	bundles, err := s.api.Bundles(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(bundles, func(b host.Bundle) bool { return b.Name == demoBundle }) {
		return nil
	}
	return s.step("build the bundle "+demoBundle, func() (string, error) {
		b, err := s.api.BuildBundle(ctx, host.BuildRequest{Kind: demoBundle}, nil)
		return fmt.Sprintf("%s new in the store", kib(b.NewBytes)), err
	})
}
