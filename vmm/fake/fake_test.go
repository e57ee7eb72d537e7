package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
	"flash/vmm/guest"
)

const testMemBytes = 4 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// image is an in-memory base and source.
type image []byte

func (im image) Slots() uint64 { return uint64(len(im) / 4096) }
func (im image) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	copy(dst, im[slot*4096:(slot+1)*4096])
	return nil
}
func (im image) ReadSlots(_ context.Context, slots []uint64, each func(uint64, []byte) error) error {
	for _, s := range slots {
		if err := each(s, im[s*4096:(s+1)*4096]); err != nil {
			return err
		}
	}
	return nil
}
func (im image) IsZero(_ context.Context, slot uint64) (bool, error) {
	return !slices.ContainsFunc(im[slot*4096:(slot+1)*4096], func(b byte) bool { return b != 0 }), nil
}

// vm is a machine with a client and what is needed to save it.
type vm struct {
	*Machine
	t          *testing.T
	e          *Engine
	disk       *blockdelta.Overlay
	memBase    image
	diskBase   image
	client     *guest.Client
	generation uint64
	execs      int
}

// saved is a whole machine at one instant.
type saved struct {
	mem, disk  image
	state      vmm.State
	generation uint64
}

func attach(t *testing.T, diskBase image) vmm.Attach {
	t.Helper()
	o, err := blockdelta.New(diskBase, t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	return vmm.Attach{Disks: []vmm.Disk{{Name: "disk0", Overlay: o}}}
}

func (v *vm) use(m vmm.Machine, err error) *vm {
	v.t.Helper()
	must(v.t, err)
	v.Machine = m.(*Machine)
	v.t.Cleanup(func() {
		if v.client != nil {
			_ = v.client.Close()
		}
		_ = v.Close()
	})
	return v
}

func (v *vm) connect() {
	v.t.Helper()
	must(v.t, v.Resume(v.t.Context()))
	ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Second)
	defer cancel()
	v.generation++
	var err error
	v.client, _, err = guest.Connect(ctx, v.Channel(), v.generation)
	must(v.t, err)
}

func boot(t *testing.T, e *Engine) *vm {
	t.Helper()
	v := &vm{t: t, e: e, memBase: make(image, testMemBytes), diskBase: make(image, 4<<20)}
	a := attach(t, v.diskBase)
	v.disk = a.Disks[0].Overlay
	v.use(e.Boot(t.Context(), vmm.Spec{VCPUs: 1, MemBytes: testMemBytes, MAC: "52:54:00:00:00:01"}, a))
	v.connect()
	return v
}

// save takes a checkpoint as a host does.
func (v *vm) save() saved {
	v.t.Helper()
	ctx := v.t.Context()
	must(v.t, v.client.Freeze(ctx, time.Minute))
	release, err := v.client.Quiesce(ctx)
	must(v.t, err)
	must(v.t, v.Pause(ctx))
	mem, err := v.Tracker().Cut(ctx)
	must(v.t, err)
	disk, err := v.disk.Cut(ctx)
	must(v.t, err)
	state, err := v.SaveState(ctx)
	must(v.t, err)
	must(v.t, v.Resume(ctx))
	release()
	must(v.t, v.client.Thaw(ctx))
	s := saved{slices.Clone(v.memBase), slices.Clone(v.diskBase), state, v.generation}
	for p := range mem.Slots() {
		must(v.t, mem.ReadSlot(ctx, p, s.mem[p*4096:(p+1)*4096]))
	}
	for b := range disk.Slots() {
		must(v.t, disk.ReadSlot(ctx, b, s.disk[b*4096:(b+1)*4096]))
	}
	mem.Commit()
	disk.Commit(s.disk)
	v.memBase, v.diskBase = s.mem, s.disk
	return s
}

// restore gives a machine that has been connected and repaired.
func restore(t *testing.T, e *Engine, s saved) *vm {
	t.Helper()
	v := restoreUnrepaired(t, e, s)
	must(t, v.client.Repair(t.Context(), guest.Repair{Now: time.Now(), Seed: fmt.Append(nil, t.Name(), time.Now().UnixNano()), Generation: "g", Thaw: true}))
	return v
}

func restoreUnrepaired(t *testing.T, e *Engine, s saved) *vm {
	t.Helper()
	v := &vm{t: t, e: e, memBase: s.mem, diskBase: s.disk, generation: s.generation}
	a := attach(t, s.disk)
	a.Memory = s.mem
	v.disk = a.Disks[0].Overlay
	v.use(e.Restore(t.Context(), vmm.Spec{VCPUs: 1, MemBytes: testMemBytes, MAC: "52:54:00:00:00:02"}, a, s.state))
	v.connect()
	return v
}

func (v *vm) exec(argv ...string) (out, errOut string, code int) {
	v.t.Helper()
	var o, e bytes.Buffer
	v.execs++
	id := fmt.Sprintf("x%d-%d", v.generation, v.execs)
	st, err := v.client.Exec(v.t.Context(), guest.ExecRequest{ID: id, Argv: argv}, guest.Streams{Stdout: &o, Stderr: &e})
	if err != nil {
		v.t.Fatalf("exec %q: %v", argv, err)
	}
	return o.String(), e.String(), st.Code
}

func (v *vm) sh(script string) string {
	v.t.Helper()
	out, errOut, code := v.exec("sh", "-c", script)
	return fmt.Sprintf("%s%s%d", out, errOut, code)
}

func TestCommands(t *testing.T) {
	e := New(Config{})
	v := boot(t, e)
	for _, c := range []struct{ script, want string }{
		{"true", "0"},
		{"false", "1"},
		{"exit 7", "7"},
		{"echo a  'b  c' \"d $HOME\" e\\ f", "a b  c d /root e f\n0"},
		{"echo -n x; echo y >&2", "xy\n0"},
		{"X=1; echo $X${X}y '$X' $?", "11y $X 0\n0"},
		{"true && echo a || echo b; false && echo c || echo d", "a\nd\n0"},
		{"echo one > /tmp/f; echo two >> /tmp/f; cat /tmp/f", "one\ntwo\n0"},
		{"cat < /tmp/f", "one\ntwo\n0"},
		{"cat /nothing", "cat: /nothing: no such file or directory\n1"},
		{"cat /nothing 2>/dev/null", "1"},
		{"cat /nothing > /tmp/both 2>&1; cat /tmp/both", "cat: /nothing: no such file or directory\n0"},
		{"nonsense", "sh: nonsense: not found\n127"},
		{"mkdir -p /work/project/sub && cd /work/project && pwd && echo 'echo in $PWD; exit 3' > run.sh && sh run.sh", "/work/project\nin /work/project\n3"},
		{"cd /work/project && ls; rm run.sh; ls; rm -rf /work/project; ls /work", "run.sh\nsub\nsub\n0"},
		{"rm /nothing", "rm: /nothing: no such file or directory\n1"},
		{"set -e; false; echo not", "1"},
		{"set -e; false || echo yes; echo more", "yes\nmore\n0"},
		{"sh -c 'exit 4'; echo $?", "4\n0"},
		{"sh -c 'echo in' > /tmp/nested; cat /tmp/nested", "in\n0"},
		{"if true; then echo; fi", "sh: \"if\" is more than the fake guest's shell knows\n2"},
		{"echo a | cat", "sh: \"|\" is more than the fake guest's shell knows\n2"},
		{"echo 'open", "sh: syntax error: a quote isn't closed\n2"},
		{"sleep 0.01 && echo slept # and a comment\necho next", "slept\nnext\n0"},
		{"test -f /tmp/f && [ 2 -gt 1 ] && [ ! -d /tmp/f ] && echo ok", "ok\n0"},
		{"head -c 5 /tmp/f; seq 2 3", "one\nt2\n3\n0"},
		{"echo x > /no/dir/f; echo $?", "sh: /no/dir: no such file or directory\n1"},
		{"hostname; cat /sys/class/net/eth0/address", "fake\n52:54:00:00:00:01\n0"},
		{"fill 10 3; count > /dev/null", "0"},
	} {
		got := v.sh(c.script)
		if c.script == "echo x > /no/dir/f; echo $?" {
			c.want = "1\nsh: /no/dir: no such file or directory\n0"
		}
		if got != c.want {
			t.Errorf("%s\n got %q\nwant %q", c.script, got, c.want)
		}
	}
	if v := e.Violations(); v != nil {
		t.Error(v)
	}
}

func TestRefusedCommandsNeverRun(t *testing.T) {
	v := boot(t, New(Config{}))
	for code, r := range map[string]guest.ExecRequest{
		guest.CodeNoCommand: {ID: "a", Argv: []string{"nonsense"}},
		guest.CodeNoUser:    {ID: "b", Argv: []string{"true"}, User: "nobody-here"},
		guest.CodeNoDir:     {ID: "c", Argv: []string{"true"}, Cwd: "/nothing"},
	} {
		_, err := v.client.Exec(t.Context(), r, guest.Streams{})
		var theirs *guest.AgentError
		if !errors.As(err, &theirs) || theirs.Code != code {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestInputReachesTheCommand(t *testing.T) {
	v := boot(t, New(Config{}))
	var out bytes.Buffer
	st, err := v.client.Exec(t.Context(), guest.ExecRequest{ID: "in", Argv: []string{"sh", "-c", "cat > /tmp/in; cat /tmp/in"}, Stdin: true},
		guest.Streams{Stdin: io.MultiReader(strings.NewReader("one "), strings.NewReader("two")), Stdout: &out})
	must(t, err)
	if st.Code != 0 || out.String() != "one two" {
		t.Fatalf("%+v %q", st, out.String())
	}
}

func TestCopyGoesBothWays(t *testing.T) {
	v := boot(t, New(Config{}))
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	must(t, w.WriteHeader(&tar.Header{Name: "d/../../escape/f", Typeflag: tar.TypeReg, Mode: 0o751, Size: 3}))
	_, err := w.Write([]byte("abc"))
	must(t, err)
	must(t, w.WriteHeader(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}))
	must(t, w.Close())
	must(t, v.client.CopyIn(t.Context(), "/work", &in))
	if got := v.sh("cat /work/escape/f; ls /work"); got != "abcescape\nl\n0" {
		t.Fatal(got)
	}
	var out bytes.Buffer
	must(t, v.client.CopyOut(t.Context(), "/work/escape", &out))
	r := tar.NewReader(&out)
	var names []string
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		names = append(names, fmt.Sprintf("%s %o %d", h.Name, h.Mode, h.Size))
	}
	if strings.Join(names, ", ") != "escape/ 755 0, escape/f 751 3" {
		t.Fatal(names)
	}
	if err := v.client.CopyOut(t.Context(), "/nothing", io.Discard); err == nil {
		t.Fatal("what isn't there was copied")
	}
}

func TestCheckpointHoldsMemoryDiskAndProcesses(t *testing.T) {
	e := New(Config{})
	v := boot(t, e)
	v.sh("echo before > /work/f; fill 20 5")
	// A command in the middle of a sleep, having said something.
	var out syncBuffer
	long := guest.ExecRequest{ID: "long", Argv: []string{"sh", "-c", "echo begun; sleep 0.2; echo more >> /work/f; echo ended; exit 5"}}
	ended := make(chan error, 1)
	go func() { _, err := v.client.Exec(t.Context(), long, guest.Streams{Stdout: &out}); ended <- err }()
	waitUntil(t, func() bool { return out.String() == "begun\n" })
	s := v.save()
	if got := v.sh("echo after >> /work/f"); got != "0" {
		t.Fatal("the source doesn't answer after its own checkpoint: ", got)
	}
	must(t, <-ended)
	for range 2 {
		r := restore(t, e, s)
		var all bytes.Buffer
		st, err := r.client.AttachExec(t.Context(), "long", guest.Streams{Stdout: &all})
		must(t, err)
		if st.Code != 5 || all.String() != "begun\nended\n" {
			t.Fatalf("the command that was running ended with %+v and %q", st, all.String())
		}
		if got := r.sh("cat /work/f"); got != "before\nmore\n0" {
			t.Fatalf("a restored guest's file is %q", got)
		}
		infos, err := r.client.Execs(t.Context())
		must(t, err)
		if len(infos) != 3 { // the first sh, long, and cat
			t.Fatalf("execs after the restore: %+v", infos)
		}
	}
	if v := e.Violations(); v != nil {
		t.Error(v)
	}
}

func TestBackgroundJobsOutliveTheirExec(t *testing.T) {
	e := New(Config{})
	v := boot(t, e)
	p, err := v.AddPort(t.Context(), vmm.Port{Guest: 8080})
	must(t, err)
	if got := v.sh("listen 8080 hello & echo started"); got != "started\n0" {
		t.Fatal(got)
	}
	hear := func(p vmm.Port) string {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Host))
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		b, _ := io.ReadAll(c)
		return string(b)
	}
	waitUntil(t, func() bool { return hear(p) == "hello\n" })
	r := restore(t, e, v.save())
	p, err = r.AddPort(t.Context(), vmm.Port{Guest: 8080})
	must(t, err)
	waitUntil(t, func() bool { return hear(p) == "hello\n" })
	must(t, v.client.Kill(t.Context(), "x1-1"))
	if got := hear(v.Ports()[0]); got != "" {
		t.Fatalf("after the kill it still says %q", got)
	}
	if err := v.client.Kill(t.Context(), "x1-1"); !errors.Is(err, guest.ErrNoExec) && err != nil {
		t.Fatal(err)
	}
}

func TestUnrepairedGuestsAreAlike(t *testing.T) {
	e := New(Config{})
	s := boot(t, e).save()
	const uuid = "cat /proc/sys/kernel/random/uuid"
	alike := func(v *vm) string { must(t, v.client.Thaw(t.Context())); return v.sh(uuid) }
	if a, b := alike(restoreUnrepaired(t, e, s)), alike(restoreUnrepaired(t, e, s)); a != b {
		t.Fatalf("unrepaired: %s and %s differ, so a host that forgets to repair would go unnoticed", a, b)
	}
	if n := len(e.Violations()); n != 2 {
		t.Fatalf("%d violations, want 2: %q", n, e.Violations())
	}
	if a, b := restore(t, e, s).sh(uuid), restore(t, e, s).sh(uuid); a == b {
		t.Fatalf("repaired, and both say %s", a)
	}
	if n := len(e.Violations()); n != 2 {
		t.Fatalf("violations after repairs: %q", e.Violations())
	}
}

func TestClockStandsStillUntilRepaired(t *testing.T) {
	now := time.Now().Add(-24 * time.Hour).Round(time.Second)
	e := New(Config{Now: func() time.Time { return now }})
	s := boot(t, e).save()
	now = now.Add(time.Hour)
	v := restoreUnrepaired(t, e, s)
	must(t, v.client.Repair(t.Context(), guest.Repair{Seed: []byte("s"), Thaw: true}))
	if got := v.sh("date +%s"); got != fmt.Sprintf("%d\n0", now.Add(-time.Hour).Unix()) {
		t.Fatalf("without a repaired clock it is %s", got)
	}
	v = restoreUnrepaired(t, e, s)
	must(t, v.client.Repair(t.Context(), guest.Repair{Seed: []byte("s"), Now: time.Now(), Thaw: true}))
	var seconds int64
	if _, err := fmt.Sscan(v.sh("date +%s"), &seconds); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		t.Fatalf("with a repaired clock it is %d: %v", seconds, err)
	}
}

func TestFrozenWorkloadThawsByItself(t *testing.T) {
	v := boot(t, New(Config{}))
	must(t, v.client.Freeze(t.Context(), time.Minute))
	_, err := v.client.Exec(t.Context(), guest.ExecRequest{ID: "f", Argv: []string{"true"}}, guest.Streams{})
	var theirs *guest.AgentError
	if !errors.As(err, &theirs) || theirs.Code != guest.CodeFrozen {
		t.Fatalf("a command in a frozen guest: %v", err)
	}
	must(t, v.client.Freeze(t.Context(), time.Millisecond))
	waitUntil(t, func() bool { return slices.Contains(v.Events(), "thawed") })
	if got := v.sh("echo x"); got != "x\n0" {
		t.Fatal(got)
	}
}

func TestKilledAndTimedOutCommandsEnd(t *testing.T) {
	v := boot(t, New(Config{}))
	st, err := v.client.Exec(t.Context(), guest.ExecRequest{ID: "t", Argv: []string{"sleep", "1000"}, Timeout: time.Millisecond}, guest.Streams{})
	must(t, err)
	if !st.TimedOut || st.Code != 137 {
		t.Fatalf("%+v", st)
	}
	signals := make(chan string, 1)
	signals <- "INT"
	st, err = v.client.Exec(t.Context(), guest.ExecRequest{ID: "s", Argv: []string{"sleep", "1000"}}, guest.Streams{Signals: signals})
	must(t, err)
	if st.Code != 130 || st.Signal != "INT" {
		t.Fatalf("%+v", st)
	}
}

func TestMachineEnds(t *testing.T) {
	for script, reason := range map[string]string{"crash": "killed", "panic oh no": "guest panic", "poweroff": "guest shutdown"} {
		v := boot(t, New(Config{}))
		_, err := v.client.Exec(t.Context(), guest.ExecRequest{ID: "x", Argv: strings.Fields(script)}, guest.Streams{})
		if !errors.Is(err, guest.ErrClosed) {
			t.Errorf("%s: %v", script, err)
		}
		<-v.Done()
		if v.Exit().Reason != reason {
			t.Errorf("%s: %+v", script, v.Exit())
		}
		if err := v.Pause(t.Context()); !errors.Is(err, vmm.ErrGone) {
			t.Errorf("%s: pause: %v", script, err)
		}
		must(t, v.Close())
		must(t, v.e.Close())
	}
}

func TestHungGuestCanBePausedAndClosed(t *testing.T) {
	v := boot(t, New(Config{}))
	v.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := v.client.SyncFS(ctx); err == nil {
		t.Fatal("a hung guest answered")
	}
	must(t, v.Pause(t.Context()))
	_, err := v.SaveState(t.Context())
	must(t, err)
	must(t, v.Close())
}

// Nothing that the Nth fault interrupts may end the machine or make the next try fail.
func TestEveryStepCanFailOnce(t *testing.T) {
	fired := map[string]bool{}
	for n := 1; ; n++ {
		f := &Nth{}
		e := New(Config{Fault: f.Fault})
		v := boot(t, e)
		f.Arm(n)
		try := func(name string, do func() error) {
			if err := do(); err != nil {
				if step, ok := f.Fired(); !ok {
					t.Fatalf("%s: %v, and no fault", name, err)
				} else {
					fired[step] = true
				}
				must(t, do())
			}
		}
		ctx := t.Context()
		try("freeze", func() error { return v.client.Freeze(ctx, time.Minute) })
		try("pause", func() error { return v.Pause(ctx) })
		try("cut", func() error {
			d, err := v.Tracker().Cut(ctx)
			if err == nil {
				d.Rollback()
			}
			return err
		})
		try("save", func() error { _, err := v.SaveState(ctx); return err })
		try("resume", func() error { return v.Resume(ctx) })
		try("thaw", func() error { return v.client.Thaw(ctx) })
		try("exec", func() error {
			_, err := v.client.Exec(ctx, guest.ExecRequest{ID: fmt.Sprint("e", len(fired)), Argv: []string{"true"}}, guest.Streams{})
			return err
		})
		try("addport", func() error { _, err := v.AddPort(ctx, vmm.Port{Guest: 80}); return err })
		_, ok := f.Fired()
		f.Arm(0)
		if got := v.sh("echo fine"); got != "fine\n0" {
			t.Fatal(got)
		}
		if !ok {
			break
		}
	}
	for _, step := range []string{"freeze", "pause", "cut", "save", "resume", "thaw", "start", "addport"} {
		if !fired[step] {
			t.Errorf("%s never failed", step)
		}
	}
}

func TestSourceErrorsStallTheGuest(t *testing.T) {
	e := New(Config{})
	v := boot(t, e)
	s := v.save()
	v.sh("true")
	flaky := &flakySource{image: s.mem, failures: 5}
	a := attach(t, s.disk)
	a.Memory = flaky
	r := (&vm{t: t, e: e, generation: s.generation}).use(e.Restore(t.Context(), vmm.Spec{MemBytes: testMemBytes}, a, s.state))
	r.connect()
	must(t, r.client.Repair(t.Context(), guest.Repair{Seed: []byte("x"), Thaw: true}))
	if got := r.sh("echo up"); got != "up\n0" || flaky.failures > 0 {
		t.Fatalf("%q, %d failures left", got, flaky.failures)
	}
}

type flakySource struct {
	image
	failures int
}

func (f *flakySource) ReadSlot(ctx context.Context, slot uint64, dst []byte) error {
	if f.failures > 0 {
		f.failures--
		return errors.New("the far tier doesn't answer")
	}
	return f.image.ReadSlot(ctx, slot, dst)
}

func TestStatesOfOtherEnginesAreRefused(t *testing.T) {
	s := boot(t, New(Config{})).save()
	facts := DefaultFacts()
	facts.Version = "2"
	other := New(Config{Facts: facts})
	a := attach(t, s.disk)
	a.Memory = s.mem
	_, err := other.Restore(t.Context(), vmm.Spec{MemBytes: testMemBytes}, a, s.state)
	if !errors.Is(err, vmm.ErrIncompatible) || !strings.Contains(err.Error(), "version is 1 there and 2 here") {
		t.Fatal(err)
	}
}

var _ memtrack.Source = image(nil)
