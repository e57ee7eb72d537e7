package host

import (
	"fmt"
	"testing"
	"time"

	"flash/store"
)

// A store whose budget is used up refuses checkpoints and what needs one. VMs run on and can still be stopped and started,
// the daemon collects by itself, and with room again all goes on.
func TestAStoreAtItsBudgetRefusesAndVMsRunOn(t *testing.T) {
	w, packs := newPackedWorld(t)
	ctx := t.Context()
	size := int64(32 << 20)
	if r := w.gc(GCRequest{BudgetBytes: &size}); r.Settings.BudgetBytes != size || r.Usage.Budget != size {
		t.Fatalf("%+v", r)
	}
	w.run("a", func(r *CreateRequest) { r.MemMiB = 64 })
	w.write("a", "kept")
	kept := w.checkpointNow("a", "kept")
	var err error
	taken := 1
	for ; err == nil; taken++ {
		w.sh("a", "head -c 1500000 /dev/urandom > /root/noise")
		_, err = w.Checkpoint(ctx, CheckpointRequest{ID: "a", Label: fmt.Sprint(taken)})
	}
	w.fails(err, CodeStoreFull)
	if u := w.meta.Usage(); taken < 4 || u.PackBytes < u.Limit || u.PackBytes > u.Budget {
		t.Fatalf("refused the %dth at %+v", taken, u)
	}
	if len(w.gcWanted) != 1 {
		t.Error("no collection was asked for")
	}
	_, err = w.Fork(ctx, ForkRequest{From: "a"})
	w.fails(err, CodeStoreFull)
	w.holds("a", "kept")
	w.write("a", "later")
	w.stop("a") // in the reserve
	w.start("a")
	w.holds("a", "later")
	w.rewindTo("a", kept.Number)
	w.holds("a", "kept")
	w.gc(GCRequest{Retention: &store.Retention{KeepLast: 1}, Save: true})
	if ran, err := w.upkeep(ctx, time.Now()); err != nil || !ran {
		t.Fatalf("the collection ran: %v, %v", ran, err)
	}
	if u := w.meta.Usage(); u.PackBytes >= u.Limit || u.PackBytes != packs.Stats().PackBytes {
		t.Fatalf("%+v, of %d bytes", u, packs.Stats().PackBytes)
	}
	w.checkpointNow("a", "with room")
	w.sound("a")
}

// A daemon that ends would lose the present of its VMs: that is stored beyond the budget.
func TestADaemonThatEndsSavesItsVMsBeyondTheBudget(t *testing.T) {
	w, _ := newPackedWorld(t)
	size := int64(32 << 20)
	w.must(w.SetBudget(t.Context(), size))
	w.run("a", func(r *CreateRequest) { r.MemMiB = 64 })
	w.sh("a", "head -c 3000000 /dev/urandom > /root/noise")
	w.checkpointNow("a", "one")
	for w.meta.CheckBudget(store.Reserve) == nil { // stops use what is left
		w.sh("a", "head -c 3000000 /dev/urandom > /root/noise")
		if _, err := w.Stop(t.Context(), StopRequest{ID: "a"}); err != nil {
			w.fails(err, CodeStoreFull)
			break
		}
		w.start("a")
	}
	w.write("a", "unsaved")
	w.must(w.Close(t.Context()))
	w.reopen()
	w.is("a", StateStopped)
	w.start("a")
	w.holds("a", "unsaved")
}
