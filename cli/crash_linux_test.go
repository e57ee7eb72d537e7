package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"flash/cli/httpapi"
	"flash/vmm/host"
)

var (
	crashSeed   = flag.Uint64("crash-seed", 0, "seed of the kills; 0: another one each time")
	crashRounds = flag.Int("crash-rounds", 25, "how many kills there are")
)

// victim is the service in the guest. The nonce and the count are nowhere but in its memory; the files are on the disk.
// So "what is asked gives nonce and count, and there are as many files" compares memory, processes and disk at once.
const victim = `mkdir -p /work && cd /work && mkfifo ask answer && setsid sh -c '
nonce=$(cat /proc/sys/kernel/random/uuid)
n=0
while :; do
  read what <ask
  if [ "$what" = step ]; then n=$((n+1)); echo $nonce >file.$n; fi
  echo $nonce $n $$ >answer
done' </dev/null >/dev/null 2>&1 &`

// busy changes memory and disk all the time, so that cuts have something to save.
const busy = `setsid sh -c 'while :; do head -c 200000 /dev/urandom >/work/noise; sync; sleep 0.1; done' </dev/null >/dev/null 2>&1 &`

const (
	askState = `cd /work && echo state >ask && cat answer && ls | grep -c ^file && cat file.* | sort -u`
	oneStep  = `cd /work && echo step >ask && cat answer`
)

// witness is what the user of a home was told, and so may rely on.
type witness struct {
	*crashHome
	rng    *rand.Rand
	who    string                  // nonce and process of the service
	count  int                     // of steps the guest has done since; what was told by exec is in here
	counts map[int]int             // of steps in each checkpoint
	acked  map[int]host.Checkpoint // those that a command has told of
	head   int                     // as the last answer or history had it
	target int                     // of the last rewind
}

const vmID = "agent-1"

// verb is one operation to die in.
type verb struct {
	name string
	args func(w *witness) []string
}

var verbs = []verb{
	{"checkpoint", func(w *witness) []string {
		return []string{"--json", "checkpoint", vmID, "--pin", "--label", w.label()}
	}},
	{"exec", func(w *witness) []string { return []string{"exec", vmID, "--", "sh", "-c", oneStep} }},
	{"rewind", func(w *witness) []string {
		w.target = w.anyCheckpoint()
		return []string{"--json", "rewind", vmID, strconv.Itoa(w.target)}
	}},
	{"fork", func(w *witness) []string {
		return []string{"--json", "fork", vmID, "--from", strconv.Itoa(w.anyCheckpoint()), "--id", "child"}
	}},
	{"stop", func(w *witness) []string { return []string{"--json", "stop", vmID} }},
	{"daemon start", func(w *witness) []string { return []string{"--json", "ps"} }},
	{"resume", func(w *witness) []string { return []string{"--json", "resume", vmID} }},
	{"nothing", nil},
}

func TestKilledAtAnyInstantNothingAcknowledgedIsLost(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again: go test ./cli -run '^%s$' -crash-seed %d -crash-rounds %d", t.Name(), seed, *crashRounds)
	w := &witness{crashHome: newCrashHome(t), rng: rand.New(rand.NewPCG(seed, 1)), counts: map[int]int{}, acked: map[int]host.Checkpoint{}}
	w.runVM(vmID)
	w.must("exec", "--no-checkpoint", vmID, "--", "sh", "-c", victim)
	w.must("exec", "--no-checkpoint", vmID, "--", "sh", "-c", busy)
	w.step() // its checkpoint is the first
	w.learn()
	w.who, w.count = w.state()

	w.dieAndComeBack(*crashRounds, verbs)
}

// dieAndComeBack is the loop: work, die in a verb, come back, and find everything that was promised.
func (w *witness) dieAndComeBack(rounds int, verbs []verb) {
	w.t.Helper()
	took := map[string]time.Duration{} // how long each verb lasts here, to die at all of its instants
	began := time.Now()
	for round := range rounds {
		v := verbs[round%len(verbs)]
		w.step()
		w.noteAsked(w.checkpointNow())
		w.must("exec", "--no-checkpoint", vmID, "--", "sh", "-c", oneStep) // the present is in no checkpoint
		w.count++
		w.dieIn(v, took)
		w.comeBack(v.name)
		if w.t.Failed() {
			w.t.Fatalf("round %d: killed in %s", round, v.name)
		}
	}
	w.noLeftovers()
	w.t.Logf("%d kills in %s; the verbs took %v", rounds, time.Since(began).Round(time.Millisecond), took)
}

// dieIn starts the verb and kills daemon and machines at some instant of it.
func (w *witness) dieIn(v verb, took map[string]time.Duration) {
	w.t.Helper()
	if v.name == "daemon start" || v.name == "resume" { // they begin where nothing runs
		w.killAll(w.anyOrder())
	}
	if v.args == nil {
		w.killAll(w.anyOrder())
		return
	}
	known, ok := took[v.name]
	if !ok {
		known = 700 * time.Millisecond // until one of it has lived to its end
	}
	began := time.Now()
	command := w.start(v.args(w)...)
	ended := make(chan result, 1)
	go func() { ended <- command.wait() }()
	delay := time.Duration(w.rng.Int64N(int64(known) * 5 / 4))
	var r result
	select {
	case <-time.After(delay):
		w.killAll(w.anyOrder())
		r = <-ended
		w.killAll(w.anyOrder()) // what a command began that had not yet asked the daemon when it was killed
	case r = <-ended:
		w.killAll(w.anyOrder())
	}
	if r.code == 0 {
		took[v.name] = time.Since(began)
		w.acknowledged(v.name, r.stdout)
	} else if r.stderr == "" && !strings.Contains(r.stdout, `"remedy"`) {
		w.t.Errorf("%s: killed after %s, and its caller was told nothing: exit code %d", v.name, delay, r.code)
	}
	w.t.Logf("killed %s after the start of %s, exit code %d", delay.Round(time.Millisecond), v.name, r.code)
}

// acknowledged takes down what a verb that went well has promised.
func (w *witness) acknowledged(verb, out string) {
	w.t.Helper()
	switch verb {
	case "checkpoint":
		w.noteAsked(decode[host.Checkpoint](w.crashHome, out))
	case "rewind":
		r := decode[host.RewindResult](w.crashHome, out)
		w.note(*r.Saved)
		w.head = *r.VM.Head
	case "stop":
		w.head = *decode[[]host.VM](w.crashHome, out)[0].Head
	}
}

// comeBack does what a user does next, and compares with what was promised.
func (w *witness) comeBack(after string) {
	w.t.Helper()
	vm := w.vm(vmID)
	if vm.State != host.StateCrashed && vm.State != host.StateStopped {
		w.t.Errorf("%s is %s, and nothing runs", vmID, vm.State)
	}
	if vm.Reason == "" {
		w.t.Errorf("ps gives no reason why %s is %s", vmID, vm.State)
	}
	before, promised, known := w.count, w.head, w.newest()
	w.must("resume", vmID)
	w.learn()
	head := w.head
	switch {
	case head == promised && (after != "rewind" || w.newest() == known): // what a rewind saves is where it comes back to
	case head > known && (after == "checkpoint" || after == "exec" || after == "stop" || after == "rewind"): // it made it, and couldn't say so
	case head == w.target && after == "rewind":
	default:
		w.t.Errorf("killed in %s, it came back at checkpoint %d; it was at %d, and the newest known was %d", after, head, promised, known)
	}
	who, count := w.state()
	if who != w.who {
		w.t.Errorf("the service is %q, it was %q", who, w.who)
	}
	if want := w.counts[head]; count != want {
		w.t.Errorf("at checkpoint %d the service has counted to %d, want %d (it was at %d when it was killed)", head, count, want, before)
	}
	w.count = count
	w.tryChild()
	w.noLeftovers()
}

// newest is the highest number known.
func (w *witness) newest() int {
	n := 0
	for number := range w.counts {
		n = max(n, number)
	}
	return n
}

// learn reads the history, holds it against what was acknowledged and takes down what is new.
func (w *witness) learn() {
	w.t.Helper()
	history := ask[[]host.Checkpoint](w.crashHome, "history", vmID)
	seen := map[int]host.Checkpoint{}
	for i, c := range history {
		seen[c.Number] = c
		if i > 0 && history[i-1].Number >= c.Number {
			w.t.Errorf("history: %d comes after %d", c.Number, history[i-1].Number)
		}
		if c.Head {
			w.head = c.Number
		}
		if _, ok := w.counts[c.Number]; !ok {
			w.counts[c.Number] = w.count // nothing but what is being killed makes checkpoints, and it makes them before it acts
		}
	}
	for n, want := range w.acked {
		got, ok := seen[n]
		if !ok || got.Label != want.Label || got.Pinned != want.Pinned || !got.Created.Equal(want.Created) || (got.Parent == nil) != (want.Parent == nil) {
			w.t.Errorf("checkpoint %d was acknowledged as %+v, and is %+v", n, want, got)
		}
	}
}

// note takes down a checkpoint of the present.
func (w *witness) note(c host.Checkpoint) {
	w.counts[c.Number] = w.count
	w.acked[c.Number] = c
}

func (w *witness) checkpointNow() host.Checkpoint {
	w.t.Helper()
	return ask[host.Checkpoint](w.crashHome, "checkpoint", vmID, "--pin", "--label", w.label())
}

func (w *witness) label() string { return fmt.Sprintf("after %d", w.count) }

// noteAsked takes down a checkpoint that was asked for with a pin and label(): that is what it must have.
func (w *witness) noteAsked(c host.Checkpoint) {
	c.Pinned, c.Label = true, w.label()
	w.note(c)
	w.head = c.Number
}

// step has the service count on; the exec's own checkpoint is learnt with the next history.
func (w *witness) step() {
	w.t.Helper()
	w.must("exec", vmID, "--", "sh", "-c", oneStep)
	w.learn()
	w.count++
}

// state asks the service who it is and how far it has counted.
func (w *witness) state() (who string, count int) {
	w.t.Helper()
	return w.stateOf(vmID)
}

func (w *witness) stateOf(id string) (who string, count int) {
	w.t.Helper()
	fields := strings.Fields(w.must("exec", "--no-checkpoint", "--timeout", "30s", id, "--", "sh", "-c", askState))
	if len(fields) != 5 || fields[1] != fields[3] || fields[0] != fields[4] {
		w.t.Fatalf("memory and disk of %s are of different instants: %q", id, fields)
	}
	count, err := strconv.Atoi(fields[1])
	if err != nil {
		w.t.Fatal(err)
	}
	return fields[0] + " " + fields[2], count
}

// tryChild looks at a fork that came to be although its command was killed: it is whole, or it isn't there.
func (w *witness) tryChild() {
	w.t.Helper()
	for _, vm := range ask[[]host.VM](w.crashHome, "ps") {
		if vm.ID == vmID {
			continue
		}
		w.must("resume", vm.ID)
		who, count := w.stateOf(vm.ID)
		if want := w.counts[vm.From.Number]; who != w.who || count != want {
			w.t.Errorf("%s is %q at %d, want %q at %d", vm.ID, who, count, w.who, want)
		}
		w.must("rm", "--force", vm.ID)
	}
}

func (w *witness) anyCheckpoint() int {
	all := make([]int, 0, len(w.acked))
	for n := range w.acked {
		all = append(all, n)
	}
	slices.Sort(all)
	return all[w.rng.IntN(len(all))]
}

// anyOrder gives the home's processes in a random order: sometimes the machine dies first and the daemon sees it.
func (w *witness) anyOrder() iter.Seq[process] {
	all := w.processes()
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return slices.Values(all)
}

func TestAKilledDaemonTakesItsMachinesAlongAndSaysSo(t *testing.T) {
	c := newCrashHome(t)
	c.runVM(vmID)
	c.must("checkpoint", vmID)
	syscall.Kill(c.daemon(), syscall.SIGKILL)
	for deadline := time.Now().Add(5 * time.Second); len(c.processes()) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("they outlived their daemon: %v", c.processes())
		}
	}
	vm := c.vm(vmID)
	if vm.State != host.StateCrashed || vm.PID != 0 || !strings.Contains(vm.Reason, "daemon") {
		t.Errorf("ps gives %+v", vm)
	}
	if out := c.must("ps"); !strings.Contains(out, vm.Reason) {
		t.Errorf("a human isn't told why: %s", out)
	}
	if r := c.run("exec", vmID, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "crashed") || !strings.Contains(r.stderr, "flash start "+vmID) {
		t.Errorf("exec in it: exit code %d: %s", r.code, r.stderr)
	}
	c.must("resume", vmID)
	c.must("exec", vmID, "--", "true")
	c.noLeftovers()
}

func TestAKilledMachineIsNoticedAtOnce(t *testing.T) {
	c := newCrashHome(t)
	c.runVM(vmID)
	c.must("exec", vmID, "--", "sh", "-c", "echo kept >/kept")
	c.must("checkpoint", vmID)
	waiting := c.start("exec", "--no-checkpoint", vmID, "--", "sh", "-c", "echo begun; sleep 300")
	<-waiting.spoke
	began := time.Now()
	syscall.Kill(c.vm(vmID).PID, syscall.SIGKILL)
	r := waiting.wait()
	if took := time.Since(began); r.code != 1 || !strings.Contains(r.stderr, "has ended") || !strings.Contains(r.stderr, "flash start "+vmID) || took > 3*time.Second {
		t.Errorf("the command in it ended %s later with %d: %s", took, r.code, r.stderr)
	}
	vm := c.vm(vmID)
	if vm.State != host.StateCrashed || vm.Reason == "" || vm.PID != 0 {
		t.Errorf("ps gives %+v", vm)
	}
	c.must("resume", vmID)
	if out := c.must("exec", vmID, "--", "cat", "/kept"); out != "kept\n" {
		t.Errorf("after the resume: %q", out)
	}
	c.noLeftovers()
}

// The command goes on where the VM does: it is saved while it runs, not killed first.
func TestADaemonThatIsToldToEndSavesWhatRuns(t *testing.T) {
	c := newCrashHome(t)
	c.runVM(vmID)
	command := c.start("exec", "--no-checkpoint", vmID, "--", "sh", "-c", "echo begun; while [ ! -e /go ]; do sleep 0.1; done; echo $$ >/done")
	<-command.spoke
	began := time.Now()
	daemon := c.daemon()
	syscall.Kill(daemon, syscall.SIGTERM)
	r := command.wait()
	if took := time.Since(began); r.code != 1 || !strings.Contains(r.stderr, "goes on wherever that state is restored") || took > drainTimeout/2 {
		t.Errorf("its caller heard after %s: %d %s", took, r.code, r.stderr)
	}
	for deadline := time.Now().Add(20 * time.Second); len(c.processes()) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there still run %v", c.processes())
		}
	}
	if vm := c.vm(vmID); vm.State != host.StateStopped || !strings.Contains(vm.Reason, "daemon") || vm.Head == nil {
		t.Errorf("ps gives %+v", vm)
	}
	c.must("start", vmID)
	c.must("exec", "--timeout", "30s", vmID, "--", "sh", "-c", "touch /go; while [ ! -s /done ]; do sleep 0.1; done")
	c.noLeftovers()
}

// A build that is killed leaves neither its children nor its gigabytes, and is simply run again.
func TestAKilledBundleBuildLeavesNothing(t *testing.T) {
	c := newCrashHome(t)
	c.must("ps")
	for _, delay := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond} {
		build := c.start("bundle", "build", "busybox")
		time.Sleep(delay) // somewhere in it: no instant is special
		c.killAll(slices.Values(c.processes()))
		if r := build.wait(); r.code != 1 {
			t.Logf("killed after %s, too late: %s", delay, r)
		}
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			left := c.builders()
			if len(left) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("children of the build go on: %q", left)
			}
		}
		c.noLeftovers()
	}
	c.must("bundle", "build", "busybox")
	c.noLeftovers()
}

// What was being made when its maker was killed is gone with the next daemon.
func TestHalfMadeFilesAreSwept(t *testing.T) {
	c := newCrashHome(t)
	c.must("ps")
	c.killAll(slices.Values(c.processes()))
	for _, name := range []string{"boot/new-123", "scratch/overlay-123.scratch", "scratch/cut-123.scratch", "scratch/bundle-123/root/bin/sh", ".s123/s"} {
		path := filepath.Join(c.home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c.noLeftovers()
}

// A database that kills its opener is told at every start, and doesn't keep the daemon dying.
func TestADamagedDatabaseIsToldWithItsRemedy(t *testing.T) {
	c := newCrashHome(t)
	c.must("ps")
	c.must("serve", "--stop") // what the database holds goes into a table
	c.must("ps")
	c.killAll(slices.Values(c.processes()))
	tables, err := filepath.Glob(filepath.Join(c.home, "meta", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table to damage: %v", err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	clear(damaged[len(damaged)-64:])
	if err := os.WriteFile(tables[0], damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := c.run("--json", "ps")
		told := decode[httpapi.ErrorBody](c, r.stdout).Error
		if r.code != 1 || told.Code != host.CodeCorrupt || !strings.Contains(told.Remedy, filepath.Join(c.home, "meta")) {
			t.Errorf("exit code %d: %+v", r.code, told)
		}
	}
	if err := os.WriteFile(tables[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	c.must("ps")
}
