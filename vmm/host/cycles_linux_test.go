package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flash/blockdelta"
)

// startCounter starts a process that counts in its memory and answers with its count when asked.
const startCounter = `mkdir -p /run/count; cat > /run/count/loop <<'X'
n=0; while :; do n=$((n+1)); echo $n > /run/count/now.new; mv /run/count/now.new /run/count/now; sleep 0.05; done
X
sh /run/count/loop > /dev/null 2>&1 &
echo $! > /run/count/pid`

func (v *testVM) count() int {
	v.t.Helper()
	n, err := strconv.Atoi(v.sh("until cat /run/count/now 2>/dev/null; do sleep 0.05; done"))
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// killMachine kills the QEMU process and waits until the host has noticed.
func (v *testVM) killMachine() {
	v.t.Helper()
	g := v.h.running(v.h.vms[v.id])
	if err := unix.Kill(g.machine.Process().PID, unix.SIGKILL); err != nil {
		v.t.Fatal(err)
	}
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for v.state() != StateCrashed {
		select {
		case <-tick.C:
		case <-deadline:
			v.t.Fatalf("killed, but it is %s", v.state())
		}
	}
}

func (v *testVM) state() string {
	v.t.Helper()
	out, err := v.h.Get(v.t.Context(), v.id)
	if err != nil {
		v.t.Fatal(err)
	}
	return out.State
}

// fsck writes a checkpoint's disk to a sparse file and wants e2fsck to find nothing, the journal replayed.
func (v *testVM) fsck(n int) {
	v.t.Helper()
	ctx := v.t.Context()
	_, snap, err := v.h.target(ctx, v.id, n)
	if err != nil {
		v.t.Fatal(err)
	}
	im, err := snap.Image(ctx, "disk0")
	if err != nil {
		v.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(v.t.TempDir(), "disk"))
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(im.Bytes())); err != nil {
		v.t.Fatal(err)
	}
	var slots []uint64
	for slot := range im.Slots() {
		if zero, err := im.IsZero(ctx, slot); err != nil {
			v.t.Fatal(err)
		} else if !zero {
			slots = append(slots, slot)
		}
	}
	err = im.ReadSlots(ctx, slots, func(slot uint64, data []byte) error {
		_, err := f.WriteAt(data, int64(slot)*blockdelta.BlockBytes)
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	// Replaying the journal is what any mount does; then nothing may be left to mend.
	if out, err := exec.CommandContext(ctx, "e2fsck", "-fp", "-E", "journal_only", f.Name()).CombinedOutput(); err != nil && exitCode(err) > 1 {
		v.t.Fatalf("replay the journal of checkpoint %d: %v\n%s", n, err, out)
	}
	if out, err := exec.CommandContext(ctx, "e2fsck", "-fn", f.Name()).CombinedOutput(); err != nil {
		v.t.Fatalf("checkpoint %d's file system isn't clean: %v\n%s", n, err, out)
	}
}

func exitCode(err error) int {
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return -1
}

// TestTwentyCyclesOfWriteCheckpointKillStartLoseNothing: all files are there, the file system is clean, and a process
// that counts in guest memory goes on counting.
func TestTwentyCyclesOfWriteCheckpointKillStartLoseNothing(t *testing.T) {
	h := needGuests(t)
	v := runVM(t, h, "cycles", 256)
	v.sh(startCounter)
	last, newest := 0, 0
	for i := range 20 {
		v.sh(fmt.Sprintf("echo %d > /root/file-%d; sync", i, i))
		before := v.count()
		if before < last {
			t.Fatalf("cycle %d: the counter went back from %d to %d", i, last, before)
		}
		newest = v.checkpoint().Number
		v.killMachine()
		if _, err := h.Start(t.Context(), v.id); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		if last = v.count(); last < before {
			t.Fatalf("cycle %d: the counter was %d before the checkpoint and is %d", i, before, last)
		}
	}
	for i := range 20 {
		if got := v.sh(fmt.Sprintf("cat /root/file-%d", i)); got != strconv.Itoa(i) {
			t.Errorf("file %d holds %q", i, got)
		}
	}
	v.sh("kill -0 $(cat /run/count/pid)")
	v.fsck(newest)
}

// TestForksShareNothingButTheirPast: what one child writes is in no other and not in the parent; each child's history
// names the parent's checkpoint; their randomness differs from the first instant; their clocks are right.
func TestForksShareNothingButTheirPast(t *testing.T) {
	h := needGuests(t)
	v := runVM(t, h, "parent", 256)
	v.sh("mkdir /run/uuids; while :; do cat /proc/sys/kernel/random/uuid; done > /run/uuids/all 2>/dev/null &")
	v.sh("until [ -s /run/uuids/all ]; do :; done")
	c := v.checkpoint()
	children, err := h.Fork(t.Context(), ForkRequest{From: v.id, Checkpoint: &c.Number, Count: 4})
	if err != nil {
		t.Fatal(err)
	}
	forks := make([]*testVM, len(children))
	for i, child := range children {
		forks[i] = keepVM(t, h, child.ID)
	}
	past := v.sh("cat /run/uuids/all")
	before := map[string]bool{}
	for line := range strings.Lines(past) {
		before[line] = true
	}
	seen := map[string]string{}
	for _, f := range forks {
		var fresh int
		for line := range strings.Lines(f.sh("until [ $(wc -c < /run/uuids/all) -gt 2000 ]; do :; done; kill %1 2>/dev/null; cat /run/uuids/all") + "\n") {
			if before[line] || len(line) != 37 {
				continue // the parent has it too: from before the checkpoint, and the line that was half written then
			}
			fresh++
			if other := seen[line]; other != "" && other != f.id {
				t.Errorf("%s and %s both drew %s", other, f.id, line)
			}
			seen[line] = f.id
		}
		if fresh == 0 {
			t.Errorf("%s drew nothing since the fork: the test sees nothing", f.id)
		}
		history, err := h.History(t.Context(), f.id)
		if err != nil {
			t.Fatal(err)
		}
		if len(history) != 1 || history[0].Number != 0 || history[0].From == nil || history[0].From.VM != v.id || history[0].From.Number != c.Number {
			t.Errorf("%s: its history is %+v", f.id, history)
		}
		began := time.Now()
		guestNow, err := strconv.ParseInt(f.sh("date +%s"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if diff := time.Unix(guestNow, 0).Sub(began); diff < -2*time.Second || diff > time.Since(began)+time.Second {
			t.Errorf("%s: its clock is off by %v", f.id, diff)
		}
	}
	forks[0].sh("echo mine > /root/mine; sync")
	for _, other := range append(forks[1:], v) {
		other.sh("test ! -e /root/mine")
	}
}

// TestAHundredMegabytesOfOutputPassCheckpointsUnharmed: every byte in order, with checkpoints taken in its midst.
func TestAHundredMegabytesOfOutputPassCheckpointsUnharmed(t *testing.T) {
	h := needGuests(t)
	v := runVM(t, h, "flood", 256)
	const size = 100 << 20
	check := &patternWriter{}
	done := make(chan error, 1)
	go func() { done <- v.stream(fmt.Sprintf("yes 0123456789abcde | head -c %d", size), check) }()
	taken := 0
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if _, err := h.Checkpoint(context.WithoutCancel(t.Context()), CheckpointRequest{ID: v.id, Label: "in its midst"}); err != nil {
				t.Fatal(err)
			}
			taken++
		}
	}
	if check.wrong != 0 || check.bytes != size {
		t.Errorf("%d of %d bytes came, %d of them wrong", check.bytes, size, check.wrong)
	}
	if taken < 3 {
		t.Errorf("only %d checkpoints were taken meanwhile: the test sees little", taken)
	}
}

// patternWriter checks what yes 0123456789abcde writes.
type patternWriter struct{ bytes, wrong int }

func (w *patternWriter) Write(p []byte) (int, error) {
	const pattern = "0123456789abcde\n"
	for _, c := range p {
		if c != pattern[w.bytes%len(pattern)] {
			w.wrong++
		}
		w.bytes++
	}
	return len(p), nil
}
