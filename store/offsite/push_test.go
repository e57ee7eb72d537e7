package offsite

import (
	"context"
	"errors"
	"maps"
	"testing"

	"flash/cas/bucket/dir"
)

// chain makes some checkpoints and gives what each holds.
func (h *host) chain(vm string, seed uint64, checkpoints int) map[int]state {
	h.t.Helper()
	if _, err := h.s.VM(context.Background(), vm); err != nil {
		h.create(vm)
	}
	states := map[int]state{}
	have := state{}
	for i := range uint64(checkpoints) {
		ch := state{}
		for k := range uint64(12) {
			ch[(seed*13+i*31+k*k*7)%imageSlots] = seed*1_000_000 + i*100 + k + 1
		}
		maps.Copy(have, ch)
		states[h.checkpoint(vm, ch)] = maps.Clone(have)
	}
	return states
}

func (h *host) mustHoldAll(vm string, states map[int]state) {
	h.t.Helper()
	for n, want := range states {
		h.mustHold(vm, n, want)
	}
}

func TestWhatIsPushedIsPulledWholeByAnotherHost(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("agent-1", 1, 5)
	r := a.push("agent-1")
	if !r.Mine || r.Seq != 1 || r.Epoch != 1 || r.Checkpoints != 5 || r.Packs == 0 {
		t.Errorf("%+v", r)
	}
	got := b.pull(PullRequest{VM: "agent-1"})
	if got.Packs == 0 {
		t.Errorf("%+v", got)
	}
	b.apart(func() { b.mustHoldAll("agent-1", states) })
	if left := append(m.keys("leases/"), m.keys("holds/")...); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	// What is pulled again moves nothing.
	if again := b.pull(PullRequest{VM: "agent-1"}); again.Packs != 0 {
		t.Errorf("the second pull brought %d packs", again.Packs)
	}
	// Host A is gone; its VM is taken over, and goes on here.
	b.pull(PullRequest{VM: "agent-1", TakeOver: true})
	b.checkpoint("agent-1", state{9: 99})
	if r := b.push("agent-1"); r.Epoch != 2 || r.Host != "b" || r.Newest != 6 {
		t.Errorf("%+v", r)
	}
	a.checkpoint("agent-1", state{8: 88})
	_, err := a.Push(context.Background(), PushRequest{VM: "agent-1"})
	var owner *OwnerError
	if !errors.Is(err, ErrNotOwner) || !errors.As(err, &owner) || owner.Host != "b" || owner.Since.IsZero() {
		t.Errorf("%v", err)
	}
}

func TestTheSecondPushOfAnUnchangedVMAsksLittle(t *testing.T) {
	m, c := newMemory(), newClock()
	a := newHost(t, "a", m, c)
	a.chain("vm", 1, 8)
	a.push("vm")
	before := a.requests()
	if r := a.push("vm"); r.NewBytes != 0 || r.Seq != 1 {
		t.Errorf("%+v", r)
	}
	if n := a.requests() - before; n > 5 {
		t.Errorf("%d requests", n)
	}
	a.restart() // and knows nothing of what it has pushed
	if r := a.push("vm"); r.NewBytes != 0 || a.requests() > 20 {
		t.Errorf("%+v after %d requests", r, a.requests())
	}
	a.checkpoint("vm", state{5: 5})
	before = a.requests()
	if r := a.push("vm"); r.Seq != 2 || r.Packs != 1 || a.requests()-before > 20 {
		t.Errorf("%+v after %d requests", r, a.requests()-before)
	}
}

func TestALazyPullFetchesWhatIsReadAndIsHeld(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 5)
	a.push("vm")
	before := b.requests()
	b.pull(PullRequest{VM: "vm", Lazy: true})
	if n := b.requests() - before; n > 8 {
		t.Errorf("a lazy pull took %d requests", n)
	}
	if s := b.near.Stats(); s.PlainBytes > 4<<10 { // the note of the VM's name, and no page
		t.Errorf("a lazy pull brought %d bytes in %d records", s.PlainBytes, s.Records)
	}
	if len(m.keys("holds/")) != 1 {
		t.Errorf("holds: %v", m.keys("holds/"))
	}
	b.mustHoldAll("vm", states)
	// A checkpoint taken there while pages are absent is complete, also far away.
	b.must(func() error { _, err := b.TakeOver(context.Background(), "vm"); return err }())
	want := maps.Clone(states[5])
	want[77] = 7777
	n := b.checkpoint("vm", state{77: 7777})
	b.push("vm")
	d := newHost(t, "d", m, c)
	d.pull(PullRequest{VM: "vm", As: "copy"})
	d.apart(func() { d.mustHold("copy", n, want); d.mustHoldAll("copy", states) })
}

func TestACheckpointInTheMiddleIsPushedAlone(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 5)
	two := 2
	r, err := a.Push(context.Background(), PushRequest{VM: "vm", Checkpoint: &two})
	if err != nil || r.Newest != 2 || r.Head != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.pull(PullRequest{VM: "vm"})
	b.mustHold("vm", 2, states[2])
	a.push("vm")
	if r, err := a.Push(context.Background(), PushRequest{VM: "vm", Checkpoint: &two}); err != nil || r.Newest != 5 {
		t.Errorf("the ref went back: %+v, %v", r, err)
	}
	b.pull(PullRequest{VM: "vm"})
	b.mustHoldAll("vm", states)
	none := 17
	if _, err := a.Push(context.Background(), PushRequest{VM: "vm", Checkpoint: &none}); err == nil {
		t.Error("a checkpoint that isn't there was pushed")
	}
}

func TestAPushThatIsOvertakenByATakeOverIsRefused(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 2)
	a.push("vm")
	b.pull(PullRequest{VM: "vm"})
	a.checkpoint("vm", state{7: 7})
	once := false
	a.onOp(func(op, key string) {
		if op == "put" && key == "vms/vm" && !once {
			once = true
			b.must(func() error { _, err := b.TakeOver(ctx, "vm"); return err }())
		}
	})
	if _, err := a.Push(ctx, PushRequest{VM: "vm"}); !errors.Is(err, ErrNotOwner) {
		t.Errorf("%v", err)
	}
	if ref, err := b.Ref(ctx, "vm"); err != nil || !ref.Mine || ref.Newest != 2 {
		t.Errorf("%+v, %v", ref, err)
	}
	b.mustHoldAll("vm", states)
}

func TestADirectoryThatIsOlderThanWhatItPushedIsToldSo(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a := newHost(t, "a", m, c)
	clone := newHost(t, "b", m, c)
	clone.id = a.id // its home was copied, with the host's id
	clone.reconnect()
	a.chain("vm", 1, 2)
	a.push("vm")
	clone.pull(PullRequest{VM: "vm"})
	a.checkpoint("vm", state{7: 7})
	a.push("vm")
	if _, err := clone.Push(ctx, PushRequest{VM: "vm"}); !errors.Is(err, ErrRolledBack) {
		t.Errorf("an older one: %v", err)
	}
	clone.checkpoint("vm", state{8: 8})
	if _, err := clone.Push(ctx, PushRequest{VM: "vm"}); !errors.Is(err, ErrRolledBack) {
		t.Errorf("one that went another way: %v", err)
	}
	if _, err := clone.Pull(ctx, PullRequest{VM: "vm"}); !errors.Is(err, ErrDiverged) {
		t.Errorf("pulled over it: %v", err)
	}
	clone.must(clone.s.DeleteVM(ctx, "vm"))
	clone.chain("vm", 3, 1)
	if _, err := clone.Push(ctx, PushRequest{VM: "vm"}); !errors.Is(err, ErrDiverged) {
		t.Errorf("another of that name: %v", err)
	}
	if _, err := clone.Pull(ctx, PullRequest{VM: "vm"}); !errors.Is(err, ErrDiverged) {
		t.Errorf("another of that name was pulled over: %v", err)
	}
}

func TestLedgersThatWentDifferentWaysDontStopATakeOver(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 3)
	a.push("vm")
	b.pull(PullRequest{VM: "vm"})
	for _, h := range []*host{a, b} {
		h.must(h.s.MoveHead(ctx, "vm", 1, "rewind"))
	}
	a.push("vm")
	if _, err := b.TakeOver(ctx, "vm"); !errors.Is(err, ErrDiverged) {
		t.Errorf("%v", err)
	}
	b.pull(PullRequest{VM: "vm", TakeOver: true})
	b.checkpoint("vm", state{1: 1})
	if r := b.push("vm"); r.Epoch != 2 || r.Newest != 4 {
		t.Errorf("%+v", r)
	}
	b.mustHoldAll("vm", states)
}

func TestAFolderServesAsABucket(t *testing.T) {
	path, c := t.TempDir(), newClock()
	var hosts []*host
	for _, name := range []string{"a", "b"} {
		d, err := dir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		h := newHost(t, name, newMemory(), c)
		h.connectTo(d)
		hosts = append(hosts, h)
	}
	a, b := hosts[0], hosts[1]
	states := a.chain("Agent 1/ä", 1, 3)
	a.push("Agent 1/ä")
	b.pull(PullRequest{VM: "Agent 1/ä", Lazy: true})
	b.mustHoldAll("Agent 1/ä", states)
	b.pull(PullRequest{VM: "Agent 1/ä", TakeOver: true})
	b.must(b.Remove(context.Background(), "Agent 1/ä"))
	b.must(b.s.DeleteVM(context.Background(), "Agent 1/ä"))
	b.must(b.Release(context.Background()))
	a.gc()
	if r := a.gc(); r.FreedPacks == 0 {
		t.Errorf("%+v", r)
	}
}
