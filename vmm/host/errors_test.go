package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flash/cas"
	"flash/vmm"
	"flash/vmm/guest"
)

func TestEveryBadInputHasItsCodeALineAndARemedy(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.run("a")
	w.checkpointNow("a", "one")
	w.run("b")
	create := func(change func(*CreateRequest)) func() error {
		return func() error {
			r := CreateRequest{ID: "new", Bundle: "tiny", MemMiB: tinyMemMiB}
			change(&r)
			_, err := w.Create(ctx, r)
			return err
		}
	}
	fork := func(r ForkRequest) func() error {
		return func() error { r.From = "a"; _, err := w.Fork(ctx, r); return err }
	}
	exec := func(r guest.ExecRequest) func() error {
		return func() error {
			_, err := w.Exec(ctx, ExecRequest{ID: "a", Command: r}, guest.Streams{})
			return err
		}
	}
	for name, c := range map[string]struct {
		code Code
		do   func() error
	}{
		"name in use":      {CodeVMExists, create(func(r *CreateRequest) { r.ID = "a" })},
		"no name":          {CodeInvalid, create(func(r *CreateRequest) { r.ID = "" })},
		"bad name":         {CodeInvalid, create(func(r *CreateRequest) { r.ID = "../a" })},
		"name of 64":       {CodeInvalid, create(func(r *CreateRequest) { r.ID = strings.Repeat("a", 64) })},
		"name in capitals": {CodeInvalid, create(func(r *CreateRequest) { r.ID = "Agent" })},
		"name with a line": {CodeInvalid, create(func(r *CreateRequest) { r.ID = "a\nb" })},
		"1 MiB":            {CodeInvalid, create(func(r *CreateRequest) { r.MemMiB = 1 })},
		"negative memory":  {CodeInvalid, create(func(r *CreateRequest) { r.MemMiB = -512 })},
		"too much memory":  {CodeInvalid, create(func(r *CreateRequest) { r.MemMiB = 1 << 40 })},
		"no CPU":           {CodeInvalid, create(func(r *CreateRequest) { r.VCPUs = -1 })},
		"1000 CPUs":        {CodeInvalid, create(func(r *CreateRequest) { r.VCPUs = 1000 })},
		"no bundle":        {CodeInvalid, create(func(r *CreateRequest) { r.Bundle = "" })},
		"unknown bundle":   {CodeBundleNotFound, create(func(r *CreateRequest) { r.Bundle = "nope" })},
		"odd bundle":       {CodeBundleNotFound, create(func(r *CreateRequest) { r.Bundle = "../\n" })},
		"port 0":           {CodeInvalid, create(func(r *CreateRequest) { r.Ports = []vmm.Port{{Host: 80}} })},
		"port 70000":       {CodeInvalid, create(func(r *CreateRequest) { r.Ports = []vmm.Port{{Guest: 70000}} })},
		"one port twice":   {CodeInvalid, create(func(r *CreateRequest) { r.Ports = []vmm.Port{{Host: 8080, Guest: 1}, {Host: 8080, Guest: 2}} })},

		"fork: unknown checkpoint":  {CodeCheckpointNotFound, fork(ForkRequest{Checkpoint: ptr(99)})},
		"fork: negative checkpoint": {CodeCheckpointNotFound, fork(ForkRequest{Checkpoint: ptr(-1)})},
		"fork: too many":            {CodeInvalid, fork(ForkRequest{Count: 1000})},
		"fork: fewer than none":     {CodeInvalid, fork(ForkRequest{Count: -1})},
		"fork: name in use":         {CodeVMExists, fork(ForkRequest{IDs: []string{"b"}})},
		"fork: bad name":            {CodeInvalid, fork(ForkRequest{IDs: []string{"B C"}})},
		"fork: one name twice":      {CodeInvalid, fork(ForkRequest{IDs: []string{"c", "c"}})},
		"fork: more names":          {CodeInvalid, fork(ForkRequest{IDs: []string{"c", "d"}, Count: 1})},
		"fork: one port for two":    {CodeInvalid, fork(ForkRequest{Count: 2, Ports: []vmm.Port{{Host: 8080, Guest: 80}}})},
		"fork: unknown VM":          {CodeVMNotFound, func() error { _, err := w.Fork(ctx, ForkRequest{From: "nope"}); return err }},

		"rewind: unknown checkpoint": {CodeCheckpointNotFound, func() error { _, err := w.Rewind(ctx, RewindRequest{ID: "a", Checkpoint: 2}); return err }},
		"rewind: another VM's":       {CodeCheckpointNotFound, func() error { _, err := w.Rewind(ctx, RewindRequest{ID: "b", Checkpoint: 1}); return err }},
		"rewind: unknown VM":         {CodeVMNotFound, func() error { _, err := w.Rewind(ctx, RewindRequest{ID: "nope", Checkpoint: 1}); return err }},

		"exec: nothing to run":  {CodeInvalid, exec(guest.ExecRequest{})},
		"exec: empty command":   {CodeInvalid, exec(guest.ExecRequest{Argv: []string{""}})},
		"exec: unknown command": {CodeExecFailed, exec(guest.ExecRequest{Argv: []string{"nope"}})},
		"exec: unknown folder":  {CodeExecFailed, exec(guest.ExecRequest{Argv: []string{"true"}, Cwd: "/nope"})},
		"exec: unknown user":    {CodeExecFailed, exec(guest.ExecRequest{Argv: []string{"true"}, User: "nope"})},
		"exec: no text":         {CodeInvalid, exec(guest.ExecRequest{Argv: []string{"echo", "\xff"}})},
		"exec: bad id":          {CodeInvalid, exec(guest.ExecRequest{ID: "/", Argv: []string{"true"}})},
		"exec: unknown VM":      {CodeVMNotFound, func() error { _, _, err := w.try("nope", "true"); return err }},
		"attach: none yet":      {CodeExecNotFound, func() error { _, err := w.AttachExec(ctx, "b", "", guest.Streams{}); return err }},
		"attach: unknown":       {CodeExecNotFound, func() error { _, err := w.AttachExec(ctx, "a", "nope", guest.Streams{}); return err }},
		"cp: nothing there":     {CodePathNotFound, func() error { return w.CopyOut(ctx, "a", "/nope", new(strings.Builder)) }},
		"cp: a line":            {CodePathNotFound, func() error { return w.CopyOut(ctx, "a", "/no\npe", new(strings.Builder)) }},
		"exec: a line":          {CodeExecFailed, exec(guest.ExecRequest{Argv: []string{"no\npe"}})},
		"exec: a line's folder": {CodeExecFailed, exec(guest.ExecRequest{Argv: []string{"true"}, Cwd: "/no\npe"})},
		"cp: no tar":            {CodeInvalid, func() error { return w.CopyIn(ctx, "a", "/", strings.NewReader(strings.Repeat("no tar", 500))) }},
		"pin: unknown":          {CodeCheckpointNotFound, func() error { _, err := w.Pin(ctx, "a", 9, true); return err }},
		"diff: unknown":         {CodeCheckpointNotFound, func() error { _, err := w.Diff(ctx, DiffRequest{ID: "a", From: 1, To: ptr(9)}); return err }},
		"diff: no checkpoint":   {CodeCheckpointNotFound, func() error { _, err := w.Diff(ctx, DiffRequest{ID: "b"}); return err }},
		"rm: running":           {CodeVMRunning, func() error { return w.Remove(ctx, RemoveRequest{ID: "a"}) }},
		"rm: unknown":           {CodeVMNotFound, func() error { return w.Remove(ctx, RemoveRequest{ID: "nope", Force: true}) }},
		"logs: unknown":         {CodeVMNotFound, func() error { return w.Logs(ctx, "../a", false, new(strings.Builder)) }},
		"bundle rm: unknown":    {CodeBundleNotFound, func() error { return w.RemoveBundle(ctx, "nope") }},
		"bundle build: unknown": {CodeInvalid, func() error { _, err := w.BuildBundle(ctx, BuildRequest{Kind: "nope"}, nil); return err }},
		"import: relative path": {CodeInvalid, func() error { _, err := w.ImportBundle(ctx, ImportRequest{Path: "x.tar"}, nil); return err }},
		"import: nothing there": {CodeInvalid, func() error {
			_, err := w.ImportBundle(ctx, ImportRequest{Path: filepath.Join(w.dir, "x.tar")}, nil)
			return err
		}},
		"import: bad name": {CodeInvalid, func() error {
			_, err := w.ImportBundle(ctx, ImportRequest{Path: filepath.Join(w.dir, "x.tar"), Name: "/"}, nil)
			return err
		}},
		"checkpoint: unknown VM": {CodeVMNotFound, func() error { _, err := w.Checkpoint(ctx, CheckpointRequest{ID: ""}); return err }},
	} {
		err := c.do()
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Remedy == "" || strings.Contains(e.Message+e.Remedy, "\n") {
			t.Errorf("%s: %v (%+v), want %s", name, err, e, c.code)
		}
	}
	w.pastIs("a", "1<- one*") // refused before anything was done
	w.sound("a", "b")
}

func TestErrorsJoinedBelowAreOneLineAbove(t *testing.T) {
	joined := errors.Join(errors.New("one"), errors.New("two"))
	for _, err := range []error{Errorf(CodeInvalid, "r", "a: %w", joined), Explain(joined, "/home"), also(joined, nil)} {
		var e *Error
		if errors.As(err, &e) && e.Message != "one; two" && e.Message != "a: one; two" {
			t.Errorf("%q", e.Message)
		}
	}
	if err := also(errors.New("one"), errors.New("two")); err.Error() != "one; and then: two" || also(nil, err) != err || also(nil, nil) != nil {
		t.Error(err)
	}
	known := Errorf(CodeInvalid, "r", "known")
	if err := Explain(also(fmt.Errorf("outer: %w", known), joined), ""); !isCode(err, CodeInvalid) {
		t.Error(err)
	}
}

func TestAFullDiskIsCalledThat(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.chunks.FailAt(1, cas.ErrNoSpace)
	_, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
	w.fails(err, CodeNoSpace)
	w.holds("a", "one")
	w.checkpointNow("a", "two")
	w.pastIs("a", "1<- two*")
}

func TestMachinesLeaveNoFoldersAndConsolesStayBounded(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.checkpointNow("a", "one")
	w.rewindTo("a", 1)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // the old guest's goes soon after
		left, err := os.ReadDir(filepath.Join(w.dir, "run"))
		if err == nil && len(left) == 1 {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, %v", left, err)
		}
	}
	path := w.consolePath("a")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) // as an engine has it
	w.must(err)
	defer f.Close()
	var followed strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	follower := make(chan error, 1)
	saw := make(chan struct{})
	go func() {
		follower <- w.Logs(ctx, "a", true, writerFunc(func(p []byte) {
			followed.Write(p)
			if strings.HasSuffix(followed.String(), "after\n") {
				close(saw)
			}
		}))
	}()
	_, err = f.Write([]byte(strings.Repeat("a line of the console\n", consoleMaxBytes/20)))
	w.must(err)
	w.must(trimConsole(path))
	_, err = f.Write([]byte("after\n"))
	w.must(err)
	st, err := os.Stat(path)
	w.must(err)
	if st.Size() > consoleKeepBytes+200 || st.Size() < consoleKeepBytes {
		t.Errorf("%d bytes", st.Size())
	}
	<-saw
	cancel()
	w.must(<-follower)
	if lastLine(path) != "after" {
		t.Error(lastLine(path))
	}
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a", Force: true}))
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Error(err)
	}
}
