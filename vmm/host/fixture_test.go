package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
	"flash/store"
	"flash/vmm"
	"flash/vmm/fake"
	"flash/vmm/guest"
)

// world is a host over the fake engine and a real store, with everything that can be made to fail.
type world struct {
	*Host
	t      *testing.T
	dir    string
	chunks *castest.Memory
	meta   *store.Store
	engine *fake.Engine
	facts  vmm.Facts // of the engine that reopen makes
	faults *faults
	now    string    // what the VM of a loop was last told
	over   cas.Store // what the store stands on: chunks, or packs
}

// faults fails the nth step from when it was armed, and asks hook before each.
type faults struct {
	mu    sync.Mutex
	hook  func(step string) error
	left  int    // steps until one fails; 0: none does
	fired string // the step that failed
}

func (f *faults) ask(_ context.Context, step string) error {
	f.mu.Lock()
	hook := f.hook
	fails := false
	if f.left > 0 {
		if f.left--; f.left == 0 {
			f.fired, fails = step, true
		}
	}
	f.mu.Unlock()
	if fails {
		return fake.ErrInjected
	}
	if hook != nil {
		return hook(step)
	}
	return nil
}

func (f *faults) arm(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.fired = n, ""
}

// disarm tells which step failed; "": none was the nth.
func (f *faults) disarm() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	return f.fired
}

func (f *faults) on(hook func(step string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// failStep makes every step of that name fail.
func (f *faults) failStep(name string) {
	f.on(func(step string) error {
		if step == name {
			return fake.ErrInjected
		}
		return nil
	})
}

const tinyMemMiB = 8

// quick is for tests in which something hangs; others have the defaults, since a loaded machine may stand still for seconds.
var quick = Deadlines{Boot: time.Second, Answer: time.Second, Control: time.Second, Engine: time.Second, Freeze: time.Minute}

func newWorld(t *testing.T) *world {
	t.Helper()
	chunks := castest.NewMemory()
	return newWorldOver(t, &world{t: t, dir: t.TempDir(), chunks: chunks, faults: &faults{}}, chunks)
}

// newWorldOver is a world over any store of chunks.
func newWorldOver(t *testing.T, w *world, chunks cas.Store) *world {
	t.Helper()
	t.Parallel() // most of a test is waiting for the disk
	w.over = chunks
	w.openStore()
	txn, err := w.meta.Begin(t.Context(), store.SnapshotID{})
	if err != nil {
		t.Fatal(err)
	}
	defer txn.Abort()
	for name, text := range map[string]string{"kernel": "a kernel", "initrd": "an initrd"} {
		if _, err := txn.PutBytes(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := txn.PutImage(t.Context(), store.ImageSpec{Name: "disk0", Bytes: 4 << 20}, noChanges{}); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(t.Context(), store.Meta{Kind: "bundle", Created: time.Now().UTC(), Facts: map[string]string{"source": "test"}}, store.Move{Bundle: "tiny"}); err != nil {
		t.Fatal(err)
	}
	w.open(Deadlines{})
	t.Cleanup(w.end)
	return w
}

func (w *world) openStore() {
	w.t.Helper()
	var err error
	w.meta, err = store.Open(w.t.Context(), store.Config{Dir: filepath.Join(w.dir, "meta"), Chunks: w.over})
	w.must(err)
}

type noChanges struct{}

func (noChanges) Slots() iter.Seq[uint64]                        { return func(func(uint64) bool) {} }
func (noChanges) ReadSlot(context.Context, uint64, []byte) error { return errors.New("there is none") }

// open makes an engine and a host, as a daemon that starts does.
func (w *world) open(d Deadlines) {
	w.t.Helper()
	w.engine = fake.New(fake.Config{Facts: w.facts, Fault: w.faults.ask})
	log := slog.DiscardHandler
	if testing.Verbose() {
		log = slog.NewTextHandler(os.Stderr, nil)
	}
	h, err := New(w.t.Context(), Config{Store: w.meta, Engine: w.engine, Home: w.dir, RunDir: filepath.Join(w.dir, "run"), Log: slog.New(log), MinMemMiB: tinyMemMiB, Deadlines: d, Backoff: Backoff{First: 20 * time.Millisecond, Most: 200 * time.Millisecond}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Host = h
}

// reopen ends the daemon cleanly and starts another.
func (w *world) reopen() {
	w.t.Helper()
	if err := w.Close(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	w.open(Deadlines{})
}

// kill ends the daemon as kill -9 does, its machines with it, and starts another.
func (w *world) kill() {
	w.t.Helper()
	w.Host.mu.Lock()
	for _, v := range w.vms { // what the old daemon's watchers would write is what a dead daemon doesn't
		v.mu.Lock()
		v.removed = true
		v.mu.Unlock()
	}
	w.Host.mu.Unlock()
	for _, m := range w.engine.Machines() {
		m.Crash()
	}
	w.watchers.Wait()
	w.open(Deadlines{})
}

// end checks that nothing is left of a whole test.
func (w *world) end() {
	w.faults.on(nil)
	w.faults.arm(0)
	w.chunks.FailAt(0, nil)
	if err := w.Close(context.Background()); err != nil {
		w.t.Errorf("close: %v", err)
	}
	if err := w.engine.Close(); err != nil {
		w.t.Error(err)
	}
	if v := w.engine.Violations(); len(v) > 0 {
		w.t.Errorf("violations: %q", v)
	}
	for _, dir := range []string{"run", "scratch"} {
		if left, err := os.ReadDir(filepath.Join(w.dir, dir)); err != nil || len(left) > 0 {
			w.t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	if err := w.meta.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run(id string, more ...func(*CreateRequest)) VM {
	w.t.Helper()
	r := CreateRequest{ID: id, Bundle: "tiny", MemMiB: tinyMemMiB}
	for _, change := range more {
		change(&r)
	}
	v, err := w.Create(w.t.Context(), r)
	w.must(err)
	return v
}

func eachCommand(r *CreateRequest) { r.Checkpoints = true }

// try runs a script and gives its output.
func (w *world) try(id, script string) (string, ExecResult, error) {
	var out bytes.Buffer
	r, err := w.Exec(w.t.Context(), ExecRequest{ID: id, Command: guest.ExecRequest{Argv: []string{"sh", "-c", script}}}, guest.Streams{Stdout: &out, Stderr: &out})
	return strings.TrimSuffix(out.String(), "\n"), r, err
}

// sh runs a script that must succeed.
func (w *world) sh(id, script string) string {
	w.t.Helper()
	out, r, err := w.try(id, script)
	if err != nil || r.Code != 0 {
		w.t.Fatalf("%s: %s: exit code %d, %q, %v", id, script, r.Code, out, err)
	}
	return out
}

func (w *world) write(id, text string) { w.t.Helper(); w.sh(id, "echo "+text+" > /root/text") }

// holds wants a text in a VM that runs.
func (w *world) holds(id, text string) {
	w.t.Helper()
	if got := w.sh(id, "cat /root/text"); got != text {
		w.t.Fatalf("%s holds %q, want %q", id, got, text)
	}
}

func (w *world) checkpointNow(id, label string) Checkpoint {
	w.t.Helper()
	c, err := w.Checkpoint(w.t.Context(), CheckpointRequest{ID: id, Label: label})
	w.must(err)
	return c
}

func (w *world) rewindTo(id string, n int) RewindResult {
	w.t.Helper()
	r, err := w.Rewind(w.t.Context(), RewindRequest{ID: id, Checkpoint: n})
	w.must(err)
	return r
}

func (w *world) start(id string) VM {
	w.t.Helper()
	v, err := w.Start(w.t.Context(), id)
	w.must(err)
	return v
}

func (w *world) stop(id string) VM {
	w.t.Helper()
	v, err := w.Stop(w.t.Context(), StopRequest{ID: id})
	w.must(err)
	return v
}

func (w *world) get(id string) VM {
	w.t.Helper()
	v, err := w.Get(w.t.Context(), id)
	w.must(err)
	return v
}

// tells wants a state.
func (w *world) is(id, state string) VM {
	w.t.Helper()
	v := w.get(id)
	if v.State != state {
		w.t.Fatalf("%s is %s (%s), want %s", id, v.State, v.Reason, state)
	}
	return v
}

// past writes a history as "1<- one, 2<-1 two*": number, parent, label, and * at the head.
func (w *world) past(id string) string {
	w.t.Helper()
	all, err := w.History(w.t.Context(), id)
	w.must(err)
	var lines []string
	for _, c := range all {
		parent, head := "", ""
		if c.Parent != nil {
			parent = fmt.Sprint(*c.Parent)
		}
		if c.Head {
			head = "*"
		}
		lines = append(lines, fmt.Sprintf("%d<-%s %s%s", c.Number, parent, c.Label, head))
	}
	return strings.Join(lines, ", ")
}

func (w *world) pastIs(id, want string) {
	w.t.Helper()
	if got := w.past(id); got != want {
		w.t.Fatalf("history of %s:\n%s\nwant\n%s", id, got, want)
	}
}

// sound checks what must hold of a VM's records whatever has failed, and that nothing runs that shouldn't.
func (w *world) sound(ids ...string) {
	w.t.Helper()
	running := 0
	for _, id := range ids {
		all, err := w.History(w.t.Context(), id)
		w.must(err)
		v := w.get(id)
		heads, numbers := 0, []int{}
		for _, c := range all {
			if c.Parent != nil && !slices.Contains(numbers, *c.Parent) {
				w.t.Fatalf("checkpoint %d of %s has the parent %d, which isn't before it", c.Number, id, *c.Parent)
			}
			if slices.Contains(numbers, c.Number) {
				w.t.Fatalf("checkpoint %d of %s is there twice", c.Number, id)
			}
			numbers = append(numbers, c.Number)
			if c.Head {
				heads++
			}
		}
		if (v.Head != nil) != (heads == 1) {
			w.t.Fatalf("%s has the head %v, and %d checkpoints say they are it", id, v.Head, heads)
		}
		if _, err := w.Ledger(w.t.Context(), id); err != nil {
			w.t.Fatal(err)
		}
		if v.State == StateRunning {
			running++
		}
	}
	if n := len(w.engine.Machines()); n != running {
		w.t.Fatalf("%d machines for %d running VMs", n, running)
	}
	if v := w.engine.Violations(); len(v) > 0 {
		w.t.Fatalf("violations: %q", v)
	}
}

// fails wants a failure of a kind, told in one line and with a remedy.
func (w *world) fails(err error, code Code) {
	w.t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		w.t.Fatalf("%v, want %s", err, code)
	}
	if e.Code != code || e.Remedy == "" || strings.Contains(e.Message+e.Remedy, "\n") || e.Message == "" {
		w.t.Fatalf("%s: %q, remedy %q; want %s, one line each", e.Code, e.Message, e.Remedy, code)
	}
}
