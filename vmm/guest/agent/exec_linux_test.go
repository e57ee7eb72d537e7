package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"flash/vmm/guest"
)

// execPromises are kept on this host and inside a machine alike.
var execPromises = []struct {
	name string
	keep func(t *testing.T, p place)
}{
	{"StreamsAreSeparateAndTheExitCodeIsTheCommands", func(t *testing.T, p place) {
		out, errs, status := p.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", "echo one; echo two >&2; exit 7"}}, "")
		if out != "one\n" || errs != "two\n" || status != (guest.ExitStatus{Code: 7}) {
			t.Fatalf("stdout %q, stderr %q, status %+v", out, errs, status)
		}
	}},
	{"StdinArrivesAndEnds", func(t *testing.T, p place) {
		text := strings.Repeat("a line of text\n", 40000)
		out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"cat"}, Stdin: true}, text)
		if out != text {
			t.Fatalf("%d bytes of %d came back", len(out), len(text))
		}
		if out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"cat"}}, ""); out != "" {
			t.Fatalf("/dev/null gave %q", out)
		}
	}},
	{"StdinThatNobodyReadsHoldsNothingUp", func(t *testing.T, p place) {
		out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", "head -c 3; exec 0<&-; sleep 0.1"}, Stdin: true}, strings.Repeat("abc", 1<<20))
		if out != "abc" {
			t.Fatalf("%q", out)
		}
	}},
	{"TerminalHasASizeThatChanges", func(t *testing.T, p place) {
		resize := make(chan guest.WindowSize, 1)
		resize <- guest.WindowSize{Rows: 40, Cols: 100}
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.client.Exec(ctx, guest.ExecRequest{ID: newID(), TTY: true, Rows: 30, Cols: 90,
			Argv: []string{"sh", "-c", `test -t 0 && test -t 2 && echo tty $TERM; until [ "$(stty size)" = "40 100" ]; do sleep 0.02; done; echo resized`}},
			guest.Streams{Stdout: &out, Resize: resize})
		if err != nil || out.String() != "tty xterm-256color\r\nresized\r\n" {
			t.Fatalf("%q, %v", &out, err)
		}
	}},
	{"TerminalTakesInputAndItsEnd", func(t *testing.T, p place) {
		out, _, _ := p.run(t, guest.ExecRequest{TTY: true, Stdin: true, Argv: []string{"sh", "-c", "stty -echo; echo ready; cat; echo end"}}, "typed\n")
		if !strings.HasSuffix(out, "typed\r\nend\r\n") {
			t.Fatalf("%q", out)
		}
	}},
	{"EnvironmentIsTheDefaultWithTheRequestsOnTop", func(t *testing.T, p place) {
		out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"env"}, Env: []string{"A=1", "HOME=/x", "A=2"}}, "")
		want := map[string]bool{"A=2": true, "HOME=/x": true, "USER=root": true, "LOGNAME=root": true, "PATH=" + defaultPath: true}
		for line := range strings.Lines(out) {
			if !want[strings.TrimSpace(line)] {
				t.Errorf("unexpected %q", line)
			}
			delete(want, strings.TrimSpace(line))
		}
		if len(want) > 0 {
			t.Errorf("missing %v", want)
		}
	}},
	{"FolderIsTheOneAskedFor", func(t *testing.T, p place) {
		if out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"pwd"}, Cwd: "/etc"}, ""); out != "/etc\n" {
			t.Errorf("%q", out)
		}
		if out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"pwd"}}, ""); out != "/root\n" {
			t.Errorf("%q", out)
		}
		p.refused(t, guest.CodeNoDir, guest.ExecRequest{Argv: []string{"pwd"}, Cwd: "/none"})
	}},
	{"UserIsANameOrANumber", func(t *testing.T, p place) {
		ids := []string{"sh", "-c", "echo $(id -u) $(id -g)"}
		if out, _, _ := p.run(t, guest.ExecRequest{Argv: ids, User: "1234:77"}, ""); out != "1234 77\n" {
			t.Errorf("1234:77 is %q", out)
		}
		if out, _, _ := p.run(t, guest.ExecRequest{Argv: ids, User: "root"}, ""); out != "0 0\n" {
			t.Errorf("root is %q", out)
		}
		p.refused(t, guest.CodeNoUser, guest.ExecRequest{Argv: ids, User: "nobody-of-this-name"})
		p.refused(t, guest.CodeNoUser, guest.ExecRequest{Argv: ids, User: "0:no-such-group"})
	}},
	{"CommandsThatCannotStartSayWhy", func(t *testing.T, p place) {
		p.refused(t, guest.CodeNoCommand, guest.ExecRequest{Argv: []string{"no-such-command"}})
		p.refused(t, guest.CodeNoCommand, guest.ExecRequest{Argv: []string{"/no/such/command"}})
		p.refused(t, guest.CodeNotExecutable, guest.ExecRequest{Argv: []string{"/etc/passwd"}})
		p.refused(t, guest.CodeNotExecutable, guest.ExecRequest{Argv: []string{"/etc"}})
		p.refused(t, guest.CodeInvalid, guest.ExecRequest{})
		p.refused(t, guest.CodeInvalid, guest.ExecRequest{ID: "../x", Argv: []string{"true"}})
		p.sh(t, `mkdir -p /tmp/flash-x; printf '#!/no/such/sh\n' > /tmp/flash-x/a; printf 'no program' > /tmp/flash-x/b; printf '#!/bin/sh\n' > /tmp/flash-x/c; chmod 755 /tmp/flash-x/a /tmp/flash-x/b; chmod 700 /tmp/flash-x/c`)
		p.refused(t, guest.CodeNoCommand, guest.ExecRequest{Argv: []string{"/tmp/flash-x/a"}})
		p.refused(t, guest.CodeNotExecutable, guest.ExecRequest{Argv: []string{"/tmp/flash-x/b"}})
		p.refused(t, guest.CodePermission, guest.ExecRequest{Argv: []string{"/tmp/flash-x/c"}, User: "1000"})
		p.sh(t, "rm -r /tmp/flash-x")
	}},
	{"SignalIsSaidByNameAndNumber", func(t *testing.T, p place) {
		_, _, status := p.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", "kill -9 $$"}}, "")
		if status != (guest.ExitStatus{Code: 137, Signal: "KILL"}) {
			t.Fatalf("%+v", status)
		}
	}},
	{"SignalsReachTheProcessGroup", func(t *testing.T, p place) {
		signals := make(chan string)
		var out bytes.Buffer
		ready := &firstWrite{first: make(chan struct{})}
		go func() {
			<-ready.first
			signals <- "TERM"
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		status, err := p.client.Exec(ctx, guest.ExecRequest{ID: newID(), Argv: []string{"sh", "-c", "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.02; done"}},
			guest.Streams{Stdout: io.MultiWriter(&out, ready), Signals: signals})
		if err != nil || status.Code != 3 || out.String() != "ready\ngot it\n" {
			t.Fatalf("%+v, %q, %v", status, &out, err)
		}
	}},
	{"TimeoutKillsEverything", func(t *testing.T, p place) {
		id := newID()
		out, _, status := p.run(t, guest.ExecRequest{ID: id, Timeout: 300 * time.Millisecond,
			Argv: []string{"sh", "-c", "setsid sh -c 'setsid sleep 1000 & sleep 1000' & echo begun; sleep 1000"}}, "")
		if out != "begun\n" || !status.TimedOut || status.Signal != "KILL" {
			t.Fatalf("%q, %+v", out, status)
		}
		p.gone(t, id)
	}},
	{"BackgroundProcessesOutliveTheirExecUntilKilled", func(t *testing.T, p place) {
		id := newID()
		// It holds the streams open and goes on writing to them: that must neither hold up the exec nor kill it.
		out, _, _ := p.run(t, guest.ExecRequest{ID: id, Argv: []string{"sh", "-c", "(while :; do echo noise || exit; sleep 0.01; done) & echo $!"}}, "")
		pid := 0
		for line := range strings.Lines(out) {
			if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				pid = n
			}
		}
		if pid == 0 {
			t.Fatalf("%q", out)
		}
		p.sh(t, fmt.Sprintf("sleep 0.3; kill -0 %d", pid))
		if err := p.client.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.gone(t, id)
	}},
	{"KillReachesGrandchildrenInOtherSessions", func(t *testing.T, p place) {
		id := newID()
		ended := p.start(t, id, "setsid setsid sleep 1000 & echo begun; sleep 1000")
		if err := p.client.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		p.gone(t, id)
		if err := p.client.Kill(t.Context(), "never-was"); !errors.Is(err, guest.ErrNoExec) {
			t.Fatalf("killing what isn't there gave %v", err)
		}
	}},
	{"CancellationKillsTheCommand", func(t *testing.T, p place) {
		id := newID()
		ctx, cancel := context.WithCancel(t.Context())
		ready := &firstWrite{first: make(chan struct{})}
		go func() {
			<-ready.first
			cancel()
		}()
		_, err := p.client.Exec(ctx, guest.ExecRequest{ID: id, Argv: []string{"sh", "-c", "echo begun; sleep 1000"}}, guest.Streams{Stdout: ready})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		p.gone(t, id)
	}},
	{"FrozenWorkloadStandsStillUntilThawed", func(t *testing.T, p place) {
		id := newID()
		p.start(t, id, "echo begun; while :; do echo x >> /tmp/flash-count; done")
		count := func() int { n, _ := strconv.Atoi(strings.TrimSpace(p.sh(t, "wc -c < /tmp/flash-count"))); return n }
		if err := p.client.Freeze(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		p.refused(t, guest.CodeFrozen, guest.ExecRequest{Argv: []string{"true"}})
		out, _, _ := p.run(t, guest.ExecRequest{Argv: []string{"echo", "thawed"}, Thaw: true}, "")
		if out != "thawed\n" {
			t.Fatalf("%q", out)
		}
		before := count()
		if err := p.client.Freeze(t.Context(), 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		// The host falls silent: the agent thaws by itself, and the exec below is let in.
		deadline := time.Now().Add(20 * time.Second)
		for {
			if _, _, _, err := p.try(t, guest.ExecRequest{Argv: []string{"true"}}, ""); err == nil {
				break
			} else if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		if after := count(); after <= before {
			t.Fatalf("nothing went on after the thaw: %d, then %d", before, after)
		}
		if err := p.client.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.sh(t, "rm /tmp/flash-count")
	}},
	{"KillWorksOnAFrozenWorkload", func(t *testing.T, p place) {
		id := newID()
		ended := p.start(t, id, "echo begun; sleep 1000")
		if err := p.client.Freeze(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := p.client.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		<-ended
		if err := p.client.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}},
	{"OutputIsWholeHoweverLarge", func(t *testing.T, p place) {
		const megabytes = 100
		sum := sha256.New()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		begin := time.Now()
		n := &counter{w: sum}
		_, err := p.client.Exec(ctx, guest.ExecRequest{ID: newID(), Argv: []string{"sh", "-c", fmt.Sprintf("yes 0123456789abcde | head -c 1048576 > /tmp/flash-m; for i in $(seq %d); do cat /tmp/flash-m; done; rm /tmp/flash-m", megabytes)}},
			guest.Streams{Stdout: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d MB of output: %.0f MB/s", megabytes, megabytes/time.Since(begin).Seconds())
		want := sha256.New()
		line := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
		for range megabytes {
			want.Write(line)
		}
		if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
			t.Fatalf("the sum over %d bytes differs", n.n)
		}
	}},
	{"SlowReaderHoldsUpOnlyItsOwnCommand", func(t *testing.T, p place) {
		let := make(chan struct{})
		var n int
		done := make(chan error, 1)
		go func() {
			_, err := p.client.Exec(t.Context(), guest.ExecRequest{ID: newID(), Argv: []string{"sh", "-c", "yes | head -c 8000000"}},
				guest.Streams{Stdout: writerFunc(func(b []byte) (int, error) { <-let; n += len(b); return len(b), nil })})
			done <- err
		}()
		for range 5 {
			p.sh(t, "yes | head -c 300000 > /dev/null; echo other")
		}
		close(let)
		if err := <-done; err != nil || n != 8000000 {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}},
	{"SameIdStartsOnce", func(t *testing.T, p place) {
		r := guest.ExecRequest{ID: newID(), Argv: []string{"sh", "-c", "echo x >> /tmp/flash-once"}}
		p.run(t, r, "")
		p.run(t, r, "")
		if out := p.sh(t, "cat /tmp/flash-once; rm /tmp/flash-once"); out != "x\n" {
			t.Fatalf("%q", out)
		}
	}},
}

// gone checks that nothing is left of an exec, its control group included.
func (p place) gone(t *testing.T, id string) {
	t.Helper()
	p.sh(t, "test ! -e "+p.groups+"/"+id)
	// A group made ahead has a name of its own, so those that hold processes are counted: there is only the asker's.
	if out := p.sh(t, "cat "+p.groups+"/.[0-9]*/cgroup.events "+p.groups+"/*/cgroup.events 2>/dev/null | grep -c 'populated 1'"); out != "1\n" {
		t.Errorf("%s groups hold processes", strings.TrimSpace(out))
	}
}

type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecOnThisHost(t *testing.T) {
	p := hostPlace(t)
	for _, promise := range execPromises {
		t.Run(promise.name, func(t *testing.T) { promise.keep(t, p) })
	}
}
