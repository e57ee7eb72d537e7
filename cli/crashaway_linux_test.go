package cli

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"flash/vmm/host"
)

var lazyCrashRounds = flag.Int("lazy-crash-rounds", 9, "how many kills of a lazily woken VM there are")

// Dying in what goes to a remote, too. A push that was killed is pushed again; nothing of it is remembered here.
var awayVerbs = []verb{
	{"push", func(*witness) []string { return []string{"--json", "push", vmID, "far"} }},
	{"checkpoint", verbs[0].args},
	{"nothing", nil},
	{"pull", func(*witness) []string { return []string{"--json", "pull", "far:" + vmID} }},
	{"rewind", func(w *witness) []string {
		w.target = w.anyCheckpoint()
		return []string{"--json", "rewind", vmID, strconv.Itoa(w.target)}
	}},
	{"fork from afar", func(*witness) []string { return []string{"--json", "fork", "far:" + vmID, "--id", "child"} }},
	{"resume", func(*witness) []string { return []string{"--json", "resume", vmID} }},
}

// A VM that another host has woken lazily, and that follows to the remote all the while, keeps every promise when
// everything is killed at any instant, pushes and pulls included; and what is in the remote then is whole.
func TestALazilyWokenVMKilledAtAnyInstantLosesNothing(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again: go test ./cli -run '^%s$' -crash-seed %d -lazy-crash-rounds %d", t.Name(), seed, *lazyCrashRounds)
	far, err := os.MkdirTemp("", "far")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(far) })

	a := &witness{crashHome: newCrashHome(t), rng: rand.New(rand.NewPCG(seed, 2)), counts: map[int]int{}, acked: map[int]host.Checkpoint{}}
	a.runVM(vmID)
	a.must("exec", "--no-checkpoint", vmID, "--", "sh", "-c", victim)
	a.must("exec", "--no-checkpoint", vmID, "--", "sh", "-c", busy)
	for range 3 {
		a.step()
	}
	a.learn()
	a.who, a.count = a.state()
	last := a.checkpointNow()
	a.noteAsked(last)
	a.must("remote", "add", "far", "file://"+far)
	a.must("push", vmID, "far")
	a.killAll(slices.Values(a.processes())) // its host is gone, and what came after the checkpoint with it
	if err := os.RemoveAll(a.home); err != nil {
		t.Fatal(err)
	}

	b := &witness{crashHome: newCrashHome(t), rng: a.rng, who: a.who, count: a.counts[last.Number], counts: a.counts, acked: a.acked, head: a.head}
	b.must("remote", "add", "far", "file://"+far)
	b.must("pull", "--lazy", "--take-over", "far:"+vmID)
	b.must("resume", vmID)
	b.must("replicate", "--vm", vmID, "far")
	b.learn()
	if who, count := b.state(); who != b.who || count != b.count {
		t.Fatalf("woken elsewhere it says %q and %d, want %q and %d", who, count, b.who, b.count)
	}
	b.dieAndComeBack(*lazyCrashRounds, awayVerbs)
	b.must("push", vmID, "far")
	b.must("check", "far", "--read", "all")
	b.must("check", "--read", "all")
}
