package host

import (
	"context"
	"strings"
	"testing"

	"flash/store"
	"flash/vmm/fake"
)

// pauses gives the machine's pauses so far.
func pauses(m *fake.Machine) int {
	n := 0
	for _, e := range m.Events() {
		if e == "paused" {
			n++
		}
	}
	return n
}

func TestACheckpointOfAnotherKindOfHostIsRefusedBeforeAnythingStops(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.facts = fake.DefaultFacts()
	w.facts.Version = "2"
	w.reopen()
	// The VM itself can't come back here either, and says so; nothing is lost by trying.
	_, err := w.Start(t.Context(), "a")
	w.fails(err, CodeIncompatible)
	if !strings.Contains(err.Error(), "version is 1 there and 2 here") {
		t.Error(err)
	}
	_, err = w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
	w.fails(err, CodeIncompatible)
	_, err = w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1)})
	w.fails(err, CodeIncompatible)
	w.is("a", StateStopped)
	w.sound("a")
	w.facts = fake.DefaultFacts()
	w.reopen()
	w.start("a")
	w.holds("a", "one")
}

func TestACheckpointThatLacksAFactIsRefusedBeforeAnythingStops(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	keys := []string{factEngine, factVersion, factMachine, factCPU, factAccel, factLayout, factProtocol}
	for i, key := range keys {
		w.copyCheckpoint("a", func(m *store.Meta) { delete(m.Facts, key) })
		machine := w.engine.Machines()[0]
		before := pauses(machine)
		_, err := w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: i + 2})
		w.fails(err, CodeIncompatible)
		_, err = w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(i + 2)})
		w.fails(err, CodeIncompatible)
		if got := pauses(machine); got != before {
			t.Errorf("without %s: paused %d times", key, got-before)
		}
	}
	w.holds("a", "one")
	w.sound("a")
}

// copyCheckpoint adds a checkpoint equal to the first but for its meta.
func (w *world) copyCheckpoint(id string, change func(*store.Meta)) {
	w.t.Helper()
	ctx := w.t.Context()
	entry, snap, err := w.checkpointOf(ctx, id, 1)
	w.must(err)
	txn, err := w.meta.Begin(ctx, entry.Snapshot)
	w.must(err)
	defer txn.Abort()
	w.must(txn.Keep("kernel", "initrd", "mem", "disk0", "state"))
	meta := snap.Meta()
	change(&meta)
	_, err = txn.Commit(ctx, meta, store.Move{VM: id, ExpectHead: *w.get(id).Head, KeepHead: true, Label: "changed"})
	w.must(err)
}

func TestWhateverChunkIsCorruptTheVMRunsOn(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.sh("a", "fill 3 1")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.sh("a", "fill 3 2")
	w.checkpointNow("a", "two")
	refused, restored := 0, 0
	w.reopenStore()
	w.start("a")
	// With a working set that names none of them, damaged pages are found by the guest that stalls on them, not before.
	first, err := w.meta.Checkpoint(t.Context(), "a", 1)
	w.must(err)
	w.must(w.meta.SetWorkingSet(t.Context(), first.Snapshot, []uint64{1000}))
	for _, chunk := range w.chunks.Hashes() {
		w.write("a", "three")
		w.chunks.Corrupt(chunk)
		_, err := w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
		w.chunks.Corrupt(chunk) // mended: the VM that runs on may need the same one
		if err != nil {
			refused++
			w.fails(err, CodeCorrupt)
			w.is("a", StateRunning)
			w.holds("a", "three")
		} else {
			restored++
			w.holds("a", "one")
		}
		w.sound("a")
		w.rewindTo("a", 2)
	}
	t.Logf("%d refused, %d restored", refused, restored)
	if refused < 3 || restored < 1 {
		t.Errorf("%d refused, %d restored", refused, restored)
	}
}

// reopenStore restarts the daemon with a store that has read nothing yet.
func (w *world) reopenStore() {
	w.t.Helper()
	w.must(w.Close(context.Background()))
	w.must(w.engine.Close())
	w.must(w.meta.Close())
	w.openStore()
	w.open(Deadlines{})
}
