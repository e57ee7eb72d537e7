package host

import (
	"strings"
	"testing"

	"flash/vmm"
)

func TestRewindNeverDestroys(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	r := w.rewindTo("a", 1)
	w.holds("a", "one")
	if r.Saved == nil || r.Saved.Number != 2 || r.Saved.Label != "before rewind to 1" || r.VM.State != StateRunning || *r.VM.Head != 1 || !strings.Contains(r.VM.Notice, "connections") {
		t.Errorf("%+v", r)
	}
	w.pastIs("a", "1<- one*, 2<-1 before rewind to 1")
	w.rewindTo("a", r.Saved.Number)
	w.holds("a", "two")
	w.sound("a")
}

func TestRewindingTwiceToOneCheckpointDiscardsTheWriteInBetween(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	for _, text := range []string{"two", "three", "four"} {
		w.rewindTo("a", 1)
		w.holds("a", "one")
		w.write("a", text)
	}
	w.rewindTo("a", 1)
	w.holds("a", "one")
	w.pastIs("a", "1<- one*, 2<-1 before rewind to 1, 3<-1 before rewind to 1, 4<-1 before rewind to 1, 5<-1 before rewind to 1")
	w.rewindTo("a", 4)
	w.holds("a", "three")
}

func TestACheckpointRightAfterARewindIsComplete(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.sh("a", "fill 300 5")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.sh("a", "fill 300 6")
	w.rewindTo("a", 1)
	w.checkpointNow("a", "again")
	w.stop("a")
	w.start("a")
	w.holds("a", "one")
	d, err := w.Diff(t.Context(), DiffRequest{ID: "a", From: 1, To: ptr(3)})
	if err != nil || d.MemoryPages > 10 || d.DiskBlocks != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestAStoppedVMIsRewoundAndRuns(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	w.stop("a")
	if r := w.rewindTo("a", 1); r.Saved != nil || r.VM.State != StateRunning {
		t.Errorf("%+v", r)
	}
	w.holds("a", "one")
	w.pastIs("a", "1<- one*, 2<-1 before stop")
	w.sound("a")
}

func TestIdentityIsRepairedBeforeTheWorkloadGoesOn(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.checkpointNow("a", "one")
	boot := w.sh("a", "cat /proc/sys/kernel/random/boot_id")
	seen := map[string]bool{w.sh("a", "cat /proc/sys/kernel/random/uuid"): true}
	for range 3 {
		w.rewindTo("a", 1)
		if w.sh("a", "cat /proc/sys/kernel/random/boot_id") != boot {
			t.Error("it was booted, not rewound")
		}
		uuid := w.sh("a", "cat /proc/sys/kernel/random/uuid")
		if seen[uuid] {
			t.Errorf("%s was given twice", uuid)
		}
		seen[uuid] = true
	}
	events := strings.Join(w.engine.Machines()[0].Events(), " ")
	if i, j := strings.Index(events, "repaired"), strings.Index(events, "thawed"); i < 0 || j < i {
		t.Errorf("events %s", events)
	}
}

func TestAGuestThatCantBeRepairedIsNotLetLoose(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	before := w.engine.Machines()[0]
	w.faults.on(func(step string) error {
		if step == "repair" && w.engine.Machines()[len(w.engine.Machines())-1] != before {
			return errRepair
		}
		return nil
	})
	_, err := w.Rewind(t.Context(), RewindRequest{ID: "a", Checkpoint: 1})
	w.fails(err, CodeGuest)
	if !strings.Contains(err.Error(), "randomness") {
		t.Error(err)
	}
	_, err = w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1)})
	w.fails(err, CodeGuest)
	w.faults.on(nil)
	w.holds("a", "two")
	w.sound("a")
}

var errRepair = vmm.ErrUnsupported // any that the guest passes on as text

func TestEveryCutEnds(t *testing.T) {
	w := newWorld(t)
	for name, verb := range map[string]func(){
		"checkpoint": func() { w.checkpointNow("a", "") },
		"failed checkpoint": func() {
			w.chunks.FailAt(1, errStore)
			_, err := w.Checkpoint(t.Context(), CheckpointRequest{ID: "a"})
			w.fails(err, CodeInternal)
		},
		"rewind": func() { w.rewindTo("a", 1) },
		"stop":   func() { w.stop("a") },
	} {
		w.run("a")
		w.checkpointNow("a", "one")
		machine := w.engine.Machines()[0]
		verb()
		if _, err := machine.Tracker().Cut(t.Context()); err != nil { // ErrOpen: what was copied is never freed
			t.Errorf("after a %s: %v", name, err)
		}
		w.must(w.Remove(t.Context(), RemoveRequest{ID: "a", Force: true}))
	}
}

func TestPortsStayOverARewind(t *testing.T) {
	w := newWorld(t)
	v := w.run("a", func(r *CreateRequest) { r.Ports = []vmm.Port{{Guest: 80}} })
	if len(v.Ports) != 1 || v.Ports[0].Host == 0 {
		t.Fatalf("%+v", v.Ports)
	}
	w.checkpointNow("a", "one")
	if r := w.rewindTo("a", 1); len(r.VM.Ports) != 1 || r.VM.Ports[0] != v.Ports[0] {
		t.Errorf("%+v, were %+v", r.VM.Ports, v.Ports)
	}
	// A port that can't be had again is told, and asked for again at the next rewind.
	w.faults.failStep("addport")
	r := w.rewindTo("a", 1)
	if len(r.VM.Ports) != 0 || !strings.Contains(r.VM.Notice, ":80 isn't published again") || strings.Contains(r.VM.Notice, "\n") {
		t.Errorf("%+v", r)
	}
	w.faults.on(nil)
	if r := w.rewindTo("a", 1); len(r.VM.Ports) != 1 || r.VM.Ports[0] != v.Ports[0] {
		t.Errorf("%+v, were %+v", r.VM.Ports, v.Ports)
	}
}
