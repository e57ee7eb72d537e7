package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/vmm/guest"

	"golang.org/x/sys/unix"
)

// place is where an agent runs commands: a machine, or a control group of this host.
type place struct {
	client *guest.Client
	groups string // the workload's group, as commands see it
}

var execCount atomic.Int64

func newID() string { return fmt.Sprintf("x%d", execCount.Add(1)) }

// run runs a command to its end.
func (p place) run(t *testing.T, r guest.ExecRequest, stdin string) (stdout, stderr string, status guest.ExitStatus) {
	t.Helper()
	stdout, stderr, status, err := p.try(t, r, stdin)
	if err != nil {
		t.Fatalf("%q: %v", r.Argv, err)
	}
	return stdout, stderr, status
}

func (p place) try(t *testing.T, r guest.ExecRequest, stdin string) (stdout, stderr string, status guest.ExitStatus, err error) {
	t.Helper()
	if r.ID == "" {
		r.ID = newID()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	s := guest.Streams{Stdout: &out, Stderr: &errs}
	if r.Stdin {
		s.Stdin = strings.NewReader(stdin)
	}
	status, err = p.client.Exec(ctx, r, s)
	return out.String(), errs.String(), status, err
}

// sh runs a shell script that must succeed and gives its output.
func (p place) sh(t *testing.T, script string) string {
	t.Helper()
	out, errs, status := p.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", script}}, "")
	if status.Code != 0 {
		t.Fatalf("%s: %+v: %s", script, status, errs)
	}
	return out
}

// refused checks that a command isn't started, with this code.
func (p place) refused(t *testing.T, code string, r guest.ExecRequest) {
	t.Helper()
	_, _, status, err := p.try(t, r, "")
	var e *guest.AgentError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%+v: status %+v, error %v; want code %s", r, status, err, code)
	}
}

// start runs a script in the background and waits for its first line.
func (p place) start(t *testing.T, id, script string) (ended <-chan error) {
	t.Helper()
	first := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := p.client.Exec(context.WithoutCancel(t.Context()), guest.ExecRequest{ID: id, Argv: []string{"sh", "-c", script}},
			guest.Streams{Stdout: &firstWrite{first: first}})
		done <- err
	}()
	select {
	case <-first:
	case err := <-done:
		t.Fatalf("%s: ended before its first line: %v", script, err)
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: no first line", script)
	}
	return done
}

type firstWrite struct {
	first chan struct{}
	said  bool
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if !w.said {
		w.said = true
		close(w.first)
	}
	return len(p), nil
}

// hostPlace is an agent in this process, whose workload is a control group of this host.
func hostPlace(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		needVM(t, "starting commands as other users takes root")
	}
	mount := ""
	for _, m := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(m, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			mount = m
		}
	}
	root, err := os.MkdirTemp(mount, "flash-test-")
	if mount == "" || err != nil {
		needVM(t, "no control group can be made here: %v", err)
	}
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGroupsAt(filepath.Join(root, "w"), w)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAgentIn(g, false)
	if err != nil {
		t.Fatal(err)
	}
	a.boot.Do(func() {}) // this host's generator isn't ours to feed
	server := guest.NewServer(a, guest.Info{Version: "test", BootID: "host"})
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() { server.Serve(far); close(served) }()
	client, _, err := guest.Connect(t.Context(), near, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		<-served
		os.WriteFile(filepath.Join(root, "cgroup.kill"), []byte("1"), 0)
		for i := 0; i < 1000 && os.RemoveAll(root) != nil; i++ {
			removeInner(root)
			unix.Rmdir(root)
			time.Sleep(time.Millisecond)
			if _, err := os.Stat(root); err != nil {
				return
			}
		}
	})
	return place{client: client, groups: g.root}
}
