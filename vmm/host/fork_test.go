package host

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"flash/vmm"
	"flash/vmm/fake"
)

func TestForksShareAPastAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.run("a", func(r *CreateRequest) { r.Ports = []vmm.Port{{Guest: 80}} })
	w.write("a", "one")
	w.checkpointNow("a", "one")
	w.write("a", "two")
	children, err := w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1), Count: 3, IDs: []string{"b"}})
	w.must(err)
	names := []string{"b", "a-fork-1", "a-fork-2"}
	macs, uuids, ports := map[string]bool{}, map[string]bool{}, map[int]bool{}
	for i, c := range children {
		if c.ID != names[i] || c.State != StateRunning || c.From == nil || c.From.VM != "a" || c.From.Number != 1 || c.Checkpoints != 0 || *c.Head != 0 || c.Notice == "" {
			t.Errorf("%+v", c)
		}
		w.holds(c.ID, "one")
		macs[w.sh(c.ID, "cat /sys/class/net/eth0/address")] = true
		uuids[w.sh(c.ID, "cat /proc/sys/kernel/random/uuid")] = true
		ports[c.Ports[0].Host] = true
		if w.sh(c.ID, "hostname") != c.ID {
			t.Errorf("%s has another host name", c.ID)
		}
	}
	if len(macs) != 3 || len(uuids) != 3 || len(ports) != 3 {
		t.Errorf("%v %v %v", macs, uuids, ports)
	}
	w.write("b", "child")
	w.checkpointNow("b", "of the child")
	w.holds("a-fork-1", "one")
	w.holds("a", "two")
	w.pastIs("a", "1<- one*")
	w.pastIs("b", "0<- fork of a@1, 1<-0 of the child*")
	all, err := w.History(t.Context(), "b")
	w.must(err)
	if all[0].From == nil || *all[0].From != *children[0].From {
		t.Errorf("%+v", all[0])
	}
	w.rewindTo("b", 0)
	w.holds("b", "one")
	w.sound("a", "b", "a-fork-1", "a-fork-2")
}

func TestAForkOutlivesItsParent(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	_, err := w.Fork(t.Context(), ForkRequest{From: "a", IDs: []string{"b"}})
	w.must(err)
	w.pastIs("a", "1<- before fork*")
	_, err = w.Fork(t.Context(), ForkRequest{From: "b", Checkpoint: ptr(0), IDs: []string{"c"}}) // a fork from a fork
	w.must(err)
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "a", Force: true}))
	w.must(w.Remove(t.Context(), RemoveRequest{ID: "b", Force: true}))
	w.reopen()
	w.start("c")
	w.holds("c", "one")
	if v := w.get("c"); v.From == nil || v.From.VM != "b" || v.From.Number != 0 {
		t.Errorf("%+v", v.From)
	}
	w.sound("c")
}

func TestAStoppedVMIsForkedFromItsHead(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.stop("a")
	_, err := w.Fork(t.Context(), ForkRequest{From: "a"})
	w.must(err)
	w.holds("a-fork-1", "one")
	w.is("a", StateStopped)
	w.pastIs("a", "1<- before stop*")
	w.sound("a", "a-fork-1")
}

func TestForksComeUpTogetherOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.write("a", "one")
	w.checkpointNow("a", "one")
	for _, step := range []string{"restore", "resume", "repair"} {
		for nth := range int32(3) {
			var asked atomic.Int32
			w.faults.on(func(s string) error {
				if s == step && asked.Add(1) == nth+1 {
					return fake.ErrInjected
				}
				return nil
			})
			_, err := w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1), Count: 3})
			w.faults.on(nil)
			if err == nil {
				t.Fatalf("%s %d: it went on", step, nth)
			}
			var e *Error
			if !errors.As(err, &e) || e.Code == CodeInternal || e.Code == CodeCanceled {
				t.Errorf("%s %d: %v", step, nth, err)
			}
			if all, err := w.List(t.Context()); err != nil || len(all) != 1 {
				t.Fatalf("%s %d: %d VMs are left, %v", step, nth, len(all), err)
			}
			w.sound("a")
		}
	}
	w.holds("a", "one")
	_, err := w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1), Count: 3})
	w.must(err)
	w.sound("a", "a-fork-1", "a-fork-2", "a-fork-3")
}

func TestForksAtOnceGetDifferentNames(t *testing.T) {
	w := newWorld(t)
	w.run("a")
	w.checkpointNow("a", "one")
	failures := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := w.Fork(t.Context(), ForkRequest{From: "a", Checkpoint: ptr(1)})
			failures <- err
		}()
	}
	for range 4 {
		w.must(<-failures)
	}
	ids := []string{"a"}
	for n := range 4 {
		ids = append(ids, fmt.Sprintf("a-fork-%d", n+1))
	}
	w.sound(ids...)
}
