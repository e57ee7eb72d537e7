package vmmtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flash/blockdelta"
	"flash/vmm"
	"flash/vmm/guest"
)

// suite is one run.
type suite struct {
	engine     vmm.Engine
	options    Options
	booted     *saved // what the promises are tried on
	generation atomic.Uint64
	execs      atomic.Uint64
}

// saved is a whole machine at one instant. It never changes.
type saved struct {
	memory *image
	disk   *image
	state  vmm.State
}

// machine is a machine with all that a host has of it.
type machine struct {
	vmm.Machine
	suite   *suite
	t       *testing.T
	attach  vmm.Attach
	overlay *blockdelta.Overlay
	client  *guest.Client
	last    *saved // what it descends from
}

func (s *suite) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), s.options.Limit)
	t.Cleanup(cancel)
	return ctx
}

// plug makes what a machine is plugged into. Its folder's name is short: it will hold sockets.
func (s *suite) plug(t *testing.T, base blockdelta.Base) vmm.Attach {
	t.Helper()
	dir, err := os.MkdirTemp("", "vt")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o, err := blockdelta.New(base, dir)
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	return vmm.Attach{Dir: filepath.Join(dir, "m"), Disks: []vmm.Disk{{Name: "disk0", Overlay: o}}, Console: filepath.Join(dir, "console")}
}

func (s *suite) own(t *testing.T, m vmm.Machine, a vmm.Attach, last *saved) *machine {
	t.Helper()
	v := &machine{Machine: m, suite: s, t: t, attach: a, overlay: a.Disks[0].Overlay, last: last}
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(a.Console)
			t.Logf("exit %+v; console:\n%s", m.Exit(), console[max(0, len(console)-2000):])
		}
		v.end()
	})
	return v
}

func (v *machine) end() {
	if v.client != nil {
		_ = v.client.Close()
	}
	if err := v.Close(); err != nil {
		v.t.Errorf("close: %v", err)
	}
}

// boot gives the checkpoint of a machine that has booted.
func (s *suite) boot(t *testing.T) *saved {
	t.Helper()
	a := s.plug(t, s.options.Disk)
	m, err := s.engine.Boot(s.context(t), s.options.Spec, a)
	must(t, err)
	pages := s.options.Spec.MemBytes / slotBytes
	empty := &saved{memory: newImage(pages, nil), disk: newImage(s.options.Disk.Slots(), s.options.Disk)}
	v := s.own(t, m, a, empty)
	v.resume()
	v.connect()
	v.wants("echo booted", "booted")
	booted := v.checkpoint()
	if booted.memory.equal(empty.memory) {
		t.Fatal("the first checkpoint of a booted machine holds no memory")
	}
	v.end() // the promises are kept by restored machines alone
	return booted
}

// restore gives a paused machine.
func (s *suite) restore(t *testing.T, from *saved, change func(*vmm.Attach)) *machine {
	t.Helper()
	a := s.plug(t, from.disk)
	a.Memory = from.memory
	if change != nil {
		change(&a)
	}
	spec := s.options.Spec
	spec.Facts = from.state.Facts
	m, err := s.engine.Restore(s.context(t), spec, a, from.state)
	must(t, err)
	return s.own(t, m, a, from)
}

// revive gives a running, repaired machine.
func (s *suite) revive(t *testing.T, from *saved) *machine {
	t.Helper()
	v := s.restore(t, from, nil)
	v.goOn()
	return v
}

// goOn is what a host does with a restored machine.
func (v *machine) goOn() {
	v.t.Helper()
	v.resume()
	v.connect()
	seed := make([]byte, 64)
	_, _ = rand.Read(seed) // never fails
	must(v.t, v.client.Repair(v.suite.context(v.t), guest.Repair{Now: time.Now(), Seed: seed, Generation: "vmmtest", Thaw: true}))
}

func (v *machine) resume() {
	v.t.Helper()
	must(v.t, v.Resume(v.suite.context(v.t)))
}

func (v *machine) pause() {
	v.t.Helper()
	must(v.t, v.Pause(v.suite.context(v.t)))
}

func (v *machine) connect() {
	v.t.Helper()
	client, _, err := guest.Connect(v.suite.context(v.t), v.Channel(), v.suite.generation.Add(1))
	must(v.t, err)
	v.client = client
}

// quiet runs f in the pause of a checkpoint.
func (v *machine) quiet(f func(ctx context.Context)) {
	v.t.Helper()
	ctx := v.suite.context(v.t)
	must(v.t, v.client.Freeze(ctx, v.suite.options.Limit))
	release, err := v.client.Quiesce(ctx)
	must(v.t, err)
	v.pause()
	f(ctx)
	v.resume()
	release()
	must(v.t, v.client.Thaw(ctx))
}

// checkpoint takes one, as a host does, and checks that it is complete.
func (v *machine) checkpoint() (s *saved) {
	v.t.Helper()
	v.quiet(func(ctx context.Context) { s = v.cut(ctx) })
	return s
}

// cut is the pause of a checkpoint. Precondition: the machine is paused.
func (v *machine) cut(ctx context.Context) *saved {
	v.t.Helper()
	memory, err := v.Tracker().Cut(ctx)
	must(v.t, err)
	disk, err := v.overlay.Cut(ctx)
	must(v.t, err)
	state, err := v.SaveState(ctx)
	must(v.t, err)
	if len(state.Data) == 0 {
		v.t.Fatal("the saved state is empty")
	}
	s := &saved{v.last.memory.with(v.t, memory), v.last.disk.with(v.t, disk), state}
	s.memory.mustBe(v.t, fmt.Sprintf("a checkpoint of %d changed pages", memory.Len()), v.Memory())
	if pending, err := v.Tracker().Pending(ctx); err != nil || pending > 0 {
		v.t.Fatalf("%d pages changed while the machine was paused and its state was saved: %v", pending, err)
	}
	memory.Commit()
	disk.Commit(s.disk)
	v.last = s
	return s
}

// run runs a script in the guest and gives what it said and its status.
func (v *machine) run(script string) string {
	v.t.Helper()
	var out bytes.Buffer
	r := guest.ExecRequest{ID: fmt.Sprint("vmmtest-", v.suite.execs.Add(1)), Argv: []string{"sh", "-c", script}}
	st, err := v.client.Exec(v.suite.context(v.t), r, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		v.t.Fatalf("run %q: %v", script, err)
	}
	if st.Code != 0 {
		fmt.Fprintf(&out, " (exit %d)", st.Code)
	}
	return strings.TrimSpace(out.String())
}

func (v *machine) wants(script, want string) {
	v.t.Helper()
	if got := v.run(script); got != want {
		v.t.Fatalf("%s\n got %q\nwant %q", script, got, want)
	}
}

// write and read keep text in a file of the guest.
func (v *machine) write(name, text string) {
	v.t.Helper()
	v.wants(fmt.Sprintf("echo %s > %s/%s; sync", text, v.suite.options.Folder, name), "")
}

func (v *machine) reads(name, text string) {
	v.t.Helper()
	v.wants(fmt.Sprintf("cat %s/%s", v.suite.options.Folder, name), text)
}

func (v *machine) lacks(name string) {
	v.t.Helper()
	v.wants(fmt.Sprintf("test -e %s/%s && echo there || echo absent", v.suite.options.Folder, name), "absent")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
