package offsite

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"flash/store"
)

func (h *host) gc() GCReport {
	h.t.Helper()
	r, err := h.GC(context.Background(), GCOptions{Apply: true})
	h.must(err)
	return r
}

func TestWhatNothingReachesGoesInTwoRunsAndNothingElseDoes(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	keep := a.chain("keep", 1, 4)
	a.chain("go", 2, 4)
	a.push("keep")
	a.push("go")
	if r := a.gc(); r.UnreachedPacks != 0 || r.Condemned != 0 {
		t.Errorf("%+v", r)
	}
	a.must(a.Remove(ctx, "go"))
	if _, err := a.Ref(ctx, "go"); !errors.Is(err, ErrNoRef) {
		t.Errorf("%v", err)
	}
	before := m.copy()
	dry, err := a.GC(ctx, GCOptions{})
	if err != nil || dry.UnreachedPacks == 0 || len(m.keys("")) != len(before.keys("")) {
		t.Errorf("%+v, %v", dry, err)
	}
	first := a.gc()
	if first.FreedPacks != 0 || first.Condemned != dry.UnreachedPacks {
		t.Errorf("%+v after %+v", first, dry)
	}
	if r := b.gc(); r.FreedPacks != first.Condemned || r.Condemned != first.Compacted || r.FreedBytes == 0 { // another host's turn
		t.Errorf("%+v", r)
	}
	d := newHost(t, "d", m, c)
	d.pull(PullRequest{VM: "keep"})
	d.mustHoldAll("keep", keep)
	a.must(a.Remove(ctx, "keep"))
	// A name that was removed can be pushed again, in a later epoch.
	if r := a.push("keep"); r.Epoch != 2 {
		t.Errorf("%+v", r)
	}
	a.must(a.Remove(ctx, "keep"))
	a.gc()
	a.gc()
	if left := m.keys(""); len(left) != 1 || left[0] != condemnedKey {
		t.Errorf("all is removed, and %v are left", left)
	}
	if r := a.push("keep"); r.Epoch != 1 {
		t.Errorf("%+v", r)
	}
	b.pull(PullRequest{VM: "keep"})
	b.mustHoldAll("keep", keep)
}

func TestTheGraceIsWaitedFor(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a := newHost(t, "a", m, c)
	a.Offsite.c.Grace = time.Hour
	a.chain("vm", 1, 3)
	a.push("vm")
	a.must(a.Remove(ctx, "vm"))
	a.gc()
	if r := a.gc(); r.FreedPacks != 0 || r.Condemned == 0 {
		t.Errorf("%+v", r)
	}
	c.advance(2 * time.Hour)
	if r := a.gc(); r.FreedPacks == 0 || r.Condemned != 0 {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsHeldByAnotherHostStaysUntilItIsReleased(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 4)
	a.push("vm")
	b.pull(PullRequest{VM: "vm", Lazy: true})
	a.must(a.Remove(ctx, "vm"))
	for range 3 {
		a.gc()
	}
	b.mustHoldAll("vm", states)
	// A fork needs it as well as what it was forked from, of which nothing is left here.
	b.must(b.s.CreateVM(ctx, store.VM{ID: "fork"}, &store.ForkPoint{VM: "vm", Number: 3}))
	want := maps.Clone(states[3])
	want[1] = 11
	n := b.checkpoint("fork", state{1: 11})
	b.must(b.s.DeleteVM(ctx, "vm"))
	b.must(b.Release(ctx))
	for range 3 {
		a.gc()
	}
	b.restart()
	b.mustHold("fork", n, want)
	b.mustHold("fork", 0, states[3])
	holds, err := a.Holds(ctx)
	if err != nil || len(holds) != 1 || holds[0].Packs == 0 || holds[0].Snapshots != 0 || holds[0].Mine {
		t.Errorf("%+v, %v", holds, err)
	}
	b.must(b.s.DeleteVM(ctx, "fork"))
	b.must(b.Release(ctx))
	for range 3 {
		a.gc()
	}
	if left := append(m.keys("packs/"), m.keys("holds/")...); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

func TestPacksWithLittleLiveAreCompacted(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	a.create("vm")
	ch := state{}
	for i := range uint64(250) {
		ch[i] = 1000 + i
	}
	a.checkpoint("vm", ch)
	want := state{}
	ch = state{}
	for i := range uint64(250) {
		if want[i] = ch[i]; i%16 == 0 {
			want[i] = 1000 + i
		} else {
			ch[i] = 2000 + i
			want[i] = 2000 + i
		}
	}
	n := a.checkpoint("vm", ch)
	a.push("vm")
	bytes := m.bytes("packs/")
	a.must(a.s.RemoveCheckpoints(ctx, "vm", []int{1}, "test"))
	a.push("vm")
	compacted := 0
	for range 4 {
		compacted += a.gc().Compacted
	}
	if now := m.bytes("packs/"); compacted == 0 || now > bytes*6/10 {
		t.Errorf("%d packs were compacted; %d bytes of %d are left", compacted, now, bytes)
	}
	b.pull(PullRequest{VM: "vm"})
	b.apart(func() { b.mustHold("vm", n, want) })
}

func TestManySmallPacksAreMadeOne(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states, have := map[int]state{}, state{}
	a.create("vm")
	for i := range uint64(20) { // as replication does
		have = overlaid(have, state{i: 100 + i})
		states[a.checkpoint("vm", state{i: 100 + i})] = have
		a.push("vm")
	}
	if n := len(m.keys("packs/")); n != 20 {
		t.Fatalf("%d packs", n)
	}
	for range 3 {
		b.gc()
	}
	if n := len(m.keys("packs/")); n != 1 {
		t.Errorf("%d packs are left", n)
	}
	before := len(m.keys("packs/")) + len(m.keys("catalog/"))
	if r := a.push("vm"); r.Packs != 0 || len(m.keys("packs/"))+len(m.keys("catalog/")) != before {
		t.Errorf("what was put together was pushed again: %+v", r)
	}
	b.pull(PullRequest{VM: "vm"})
	b.apart(func() { b.mustHoldAll("vm", states) })
}

func (m *memory) bytes(prefix string) (sum int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, o := range m.objects {
		if strings.HasPrefix(k, prefix) {
			sum += len(o.data)
		}
	}
	return sum
}

func TestAPushIntoACollectionLosesNothing(t *testing.T) {
	// Whatever operation of a collection a whole push of another host comes before, its ref can be restored.
	t.Run("of packs", func(t *testing.T) { pushIntoCollection(t, false) })
	t.Run("of a tombstone alone", func(t *testing.T) { pushIntoCollection(t, true) })
}

func pushIntoCollection(t *testing.T, shared bool) {
	ctx := context.Background()
	before, c := newMemory(), newClock()
	a, b, g, d := newHost(t, "a", before, c), newHost(t, "b", before, c), newHost(t, "g", before, c), newHost(t, "d", before, c)
	states := a.chain("vm", 1, 3)
	a.push("vm")
	b.pull(PullRequest{VM: "vm", As: "copy"})
	if shared {
		b.push("copy") // which keeps the packs
	}
	a.must(a.Remove(ctx, "vm"))
	if !shared {
		g.Offsite.c.Grace = time.Hour // condemn all that a push relies on, and nothing yet happens to the tombstone
		g.gc()
	}
	for at := 2; ; at++ {
		m := before.copy()
		for _, h := range []*host{a, b, g, d} {
			h.on(m)
		}
		pusher, vm := b, "copy"
		if shared || at%2 == 1 { // the one that was removed, whose tombstone is being deleted
			pusher, vm = a, "vm"
		}
		pusher.Offsite.wait = func(ctx context.Context, d time.Duration) error { return sleep(ctx, d/100) }
		ops, pushed := 0, make(chan error, 1)
		g.onOp(func(op, key string) {
			if ops++; ops != at/2 {
				return
			}
			go func() {
				_, err := pusher.Push(ctx, PushRequest{VM: vm})
				pushed <- err
			}()
			select {
			case err := <-pushed:
				pushed <- err
			case <-time.After(50 * time.Millisecond): // it waits for the collection to end
			}
		})
		g.gc()
		if ops < at/2 {
			return
		}
		if err := <-pushed; err != nil {
			t.Fatalf("before operation %d: %v", at/2, err)
		}
		g.onOp(nil)
		g.gc()
		g.gc()
		d.pull(PullRequest{VM: vm})
		d.mustHoldAll(vm, states)
		d.must(d.s.DeleteVM(ctx, vm))
	}
}

func TestWhatAPushReliesOnStaysUntilItsRefIsThere(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b, g := newHost(t, "a", m, c), newHost(t, "b", m, c), newHost(t, "g", m, c)
	states := a.chain("vm", 1, 3)
	a.push("vm")
	b.pull(PullRequest{VM: "vm", As: "copy"})
	for at, key := range []string{"vms/copy", "leases/"} { // right before its ref is there, and when it has just ended
		removed := false
		b.onOp(func(op, k string) {
			if removed || !strings.HasPrefix(k, key) || op != []string{"put", "delete"}[at] {
				return
			}
			removed = true
			if at == 0 {
				a.must(a.Remove(ctx, "vm"))
			}
			g.gc()
			if r := g.gc(); r.FreedPacks != 0 {
				t.Errorf("%+v", r)
			}
		})
		b.push("copy")
		b.checkpoint("copy", state{3: 3})
		if !removed {
			t.Fatalf("nothing was done to %s", key)
		}
	}
	d := newHost(t, "d", m, c)
	d.pull(PullRequest{VM: "copy"})
	d.mustHoldAll("copy", states)
}

func TestADeadPushIsForgottenAndLearnsOfIt(t *testing.T) {
	m, c := newMemory(), newClock()
	a, g := newHost(t, "a", m, c), newHost(t, "g", m, c)
	states := a.chain("vm", 1, 3)
	once := false
	a.onOp(func(op, key string) {
		if op != "put" || !strings.HasPrefix(key, "catalog/") || once {
			return
		}
		once = true // the host sleeps for an hour, after its packs are there and before they are named
		for range 3 {
			g.gc()
			c.advance(20 * time.Minute)
		}
		g.gc()
		if n := len(m.keys("leases/")) + len(m.keys("packs/")); n != 0 {
			t.Errorf("%d objects of a dead push are left", n)
		}
	})
	a.push("vm")
	if !once {
		t.Fatal("it never slept")
	}
	b := newHost(t, "b", m, c)
	b.pull(PullRequest{VM: "vm"})
	b.mustHoldAll("vm", states)
}

func TestOneCollectionAtATime(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	a.chain("vm", 1, 3)
	a.push("vm")
	once := false
	a.onOp(func(op, key string) {
		if op != "list" || once {
			return
		}
		once = true
		if _, err := b.GC(context.Background(), GCOptions{Apply: true}); !errors.Is(err, ErrCollecting) {
			t.Errorf("%v", err)
		}
		c.advance(leaseTime + time.Minute) // a isn't heard of any more
		b.gc()
	})
	if _, err := a.GC(context.Background(), GCOptions{Apply: true}); !errors.Is(err, ErrCollecting) {
		t.Errorf("a collection that was taken for dead ended with %v", err)
	}
	a.onOp(nil)
	a.gc()
}

func TestATombstoneStaysWhileAPushIsAboutToReplaceIt(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b, g := newHost(t, "a", m, c), newHost(t, "b", m, c), newHost(t, "g", m, c)
	a.chain("vm", 1, 2)
	a.push("vm")
	b.pull(PullRequest{VM: "vm", As: "copy"})
	b.push("copy") // which keeps the packs: it is the tombstone alone that goes
	a.must(a.Remove(ctx, "vm"))
	atRef, goOn, pushed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	a.onOp(func(op, key string) {
		if op == "put" && key == "vms/vm" {
			atRef <- struct{}{}
			<-goOn
		}
	})
	puts := 0
	g.onOp(func(op, key string) {
		switch {
		case op == "put" && key == condemnedKey:
			if puts++; puts == 2 { // it has read all leases, and is about to publish that the tombstone goes
				go func() { _, err := a.Push(ctx, PushRequest{VM: "vm"}); pushed <- err }()
				<-atRef // its lease is there, and it has seen nothing
			}
		case op == "delete" && key == "vms/vm":
			close(goOn)
			if err := <-pushed; err != nil {
				t.Error(err)
			}
			pushed <- nil
		}
	})
	g.gc()
	select {
	case <-goOn:
	default:
		close(goOn)
	}
	if err := <-pushed; err != nil {
		t.Error(err)
	}
	if r, err := b.Ref(ctx, "vm"); err != nil {
		t.Errorf("a ref that was pushed is gone: %+v, %v", r, err)
	}
}
