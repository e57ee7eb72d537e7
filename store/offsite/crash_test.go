package offsite

import (
	"context"
	"errors"
	"flag"
	"testing"

	"flash/store"
)

// registry knows what every snapshot that was ever made holds.
type registry map[store.SnapshotID]state

func (reg registry) learn(h *host, vm string, states map[int]state) {
	h.t.Helper()
	history, err := h.s.History(context.Background(), vm)
	h.must(err)
	for _, c := range history {
		if s, ok := states[c.Number]; ok {
			reg[c.Snapshot] = s
		}
	}
}

// mustRestore pulls every ref that a bucket shows to a host that has none of them, and compares all.
func (reg registry) mustRestore(d *host, m *memory, when string) (refs []Ref) {
	d.t.Helper()
	ctx := context.Background()
	d.on(m)
	refs, err := d.Refs(ctx)
	if err != nil {
		d.t.Fatalf("%s: %v", when, err)
	}
	for _, ref := range refs {
		if _, err := d.Pull(ctx, PullRequest{VM: ref.VM, As: "restored"}); err != nil {
			d.t.Fatalf("%s: %v", when, err)
		}
		history, err := d.s.History(ctx, "restored")
		d.must(err)
		if len(history) != ref.Checkpoints {
			d.t.Fatalf("%s: %s has %d checkpoints, its ref says %d", when, ref.VM, len(history), ref.Checkpoints)
		}
		d.apart(func() {
			for _, c := range history {
				want, ok := reg[c.Snapshot]
				if !ok {
					d.t.Fatalf("%s: %s@%d is a snapshot that nobody made", when, ref.VM, c.Number)
				}
				if err := holdsSnapshot(ctx, d.s, c.Snapshot, want); err != nil {
					d.t.Fatalf("%s: %s@%d: %v", when, ref.VM, c.Number, err)
				}
			}
		})
		d.must(d.s.DeleteVM(ctx, "restored"))
	}
	_, err = d.s.GC(ctx, store.GCOptions{Apply: true}) // so that the next restore finds nothing near
	d.must(err)
	return refs
}

var everywhere = flag.Bool("everywhere", false, "kill at every operation, not at some")

// killEverywhere runs f on h, killed before and after each of its operations on a copy of the bucket, or at every stride-th of
// these instants, and then check, until it isn't killed any more.
func killEverywhere(t *testing.T, h *host, base *memory, stride int, f func() error, check func(m *memory)) {
	t.Helper()
	killed := 0
	if *everywhere {
		stride = 1
	}
	for n := 2; ; n += stride {
		m := base.copy()
		h.on(m)
		h.view.killAt, h.view.after = n/2, n%2 == 1
		err := f()
		h.view.mu.Lock()
		dead := h.view.dead
		h.view.killAt = 0
		h.view.mu.Unlock()
		if !dead {
			if err != nil {
				t.Fatalf("it wasn't killed, and failed: %v", err)
			}
			check(m)
			break
		}
		if err == nil && !h.view.after {
			t.Logf("killed before operation %d: it succeeded all the same", n/2) // what it did last needn't be
		} else if err != nil && !errors.Is(err, errKilled) {
			t.Fatalf("killed at operation %d: %v", n/2, err)
		}
		killed++
		h.on(m)
		check(m)
	}
	if killed < 5 {
		t.Errorf("it was killed only %d times", killed)
	}
}

func TestAPushKilledAnywhereLosesNothingAndIsGoneOnWith(t *testing.T) {
	ctx := context.Background()
	base, c := newMemory(), newClock()
	a, d, g := newHost(t, "a", base, c), newHost(t, "d", base, c), newHost(t, "g", base, c)
	reg := registry{}
	reg.learn(a, "vm", a.chain("vm", 1, 3))
	a.push("vm")
	have := a.stateOf(reg, "vm")
	more := state{3: 33, 250: 44}
	n := a.checkpoint("vm", more)
	reg.learn(a, "vm", map[int]state{n: overlaid(have, more)})
	killEverywhere(t, a, base, 1, func() error { _, err := a.Push(ctx, PushRequest{VM: "vm"}); return err }, func(m *memory) {
		reg.mustRestore(d, m, "after a kill")
		if r := a.push("vm"); r.Newest != n || r.Seq > 3 {
			t.Fatalf("%+v", r)
		}
		g.on(m)
		for range 2 {
			g.gc()
			c.advance(leaseTime)
		}
		g.gc()
		g.gc()
		if left := m.keys("leases/"); len(left) != 0 {
			t.Fatalf("%v are left", left)
		}
		if dry, err := g.GC(ctx, GCOptions{}); err != nil || dry.UnreachedPacks != 0 || dry.Packs != len(m.keys("packs/")) {
			t.Fatalf("%+v, %v; %d objects", dry, err, len(m.keys("packs/")))
		}
		if refs := reg.mustRestore(d, m, "at last"); len(refs) != 1 || refs[0].Newest != n {
			t.Fatalf("%+v", refs)
		}
	})
}

// stateOf gives what the head of a VM holds.
func (h *host) stateOf(reg registry, vm string) state {
	h.t.Helper()
	v, err := h.s.VM(context.Background(), vm)
	h.must(err)
	if v.Head < 0 {
		return state{}
	}
	c, err := h.s.Checkpoint(context.Background(), vm, v.Head)
	h.must(err)
	return reg[c.Snapshot]
}

func overlaid(s, with state) state {
	all := state{}
	for _, m := range []state{s, with} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func TestAPullKilledAnywhereIsGoneOnWith(t *testing.T) {
	ctx := context.Background()
	for name, lazy := range map[string]bool{"whole": false, "lazy": true} {
		t.Run(name, func(t *testing.T) {
			base, c := newMemory(), newClock()
			a, b := newHost(t, "a", base, c), newHost(t, "b", base, c)
			states := a.chain("vm", 1, 4)
			a.push("vm")
			r := PullRequest{VM: "vm", Lazy: lazy, TakeOver: true}
			killEverywhere(t, b, base, 3, func() error { _, err := b.Pull(ctx, r); return err }, func(m *memory) {
				if _, err := b.s.VM(ctx, "vm"); err == nil {
					b.mustHoldAll("vm", states)
				}
				b.pull(r)
				b.mustHoldAll("vm", states)
				if !lazy {
					b.apart(func() { b.mustHoldAll("vm", states) })
				}
				if ref, err := b.Ref(ctx, "vm"); err != nil || !ref.Mine || ref.Epoch != 2 {
					t.Fatalf("%+v, %v", ref, err)
				}
				b.must(b.Remove(ctx, "vm"))
				b.must(b.s.DeleteVM(ctx, "vm"))
				b.must(b.Release(ctx))
				if left := m.keys("holds/"); len(left) != 0 {
					t.Fatalf("%v are left", left)
				}
				_, err := b.s.GC(ctx, store.GCOptions{Apply: true})
				b.must(err)
			})
		})
	}
}

func TestACollectionKilledAnywhereIsGoneOnWith(t *testing.T) {
	ctx := context.Background()
	base, c := newMemory(), newClock()
	a, d, g := newHost(t, "a", base, c), newHost(t, "d", base, c), newHost(t, "g", base, c)
	reg := registry{}
	reg.learn(a, "keep", a.chain("keep", 1, 3))
	reg.learn(a, "go", a.chain("go", 2, 3))
	a.push("keep")
	a.push("go")
	a.must(a.Remove(ctx, "go"))
	g.gc()
	killEverywhere(t, g, base, 5, func() error { _, err := g.GC(ctx, GCOptions{Apply: true}); return err }, func(m *memory) {
		reg.mustRestore(d, m, "after a kill")
		// Another host pushes what relies on packs that were being removed, as soon as somebody has ended that.
		a.on(m)
		if _, err := a.Push(ctx, PushRequest{VM: "go"}); errors.Is(err, ErrCollecting) {
			a.on(m)
			if _, err := a.GC(ctx, GCOptions{Apply: true}); !errors.Is(err, ErrCollecting) {
				t.Fatalf("the dead collection isn't taken for alive: %v", err)
			}
			c.advance(leaseTime)
			a.gc()
			a.push("go")
		} else if err != nil {
			t.Fatal(err)
		}
		if refs := reg.mustRestore(d, m, "pushed again"); len(refs) != 2 {
			t.Fatalf("%+v", refs)
		}
		for range 4 {
			g.gc()
		}
		if dry, err := g.GC(ctx, GCOptions{}); err != nil || dry.UnreachedPacks != 0 || dry.Packs != len(m.keys("packs/")) || dry.Condemned != 0 {
			t.Fatalf("%+v, %v; %d objects", dry, err, len(m.keys("packs/")))
		}
		reg.mustRestore(d, m, "at last")
	})
}

func TestReplicationKilledAnywhereCatchesUp(t *testing.T) {
	base, c := newMemory(), newClock()
	a, d := newHost(t, "a", base, c), newHost(t, "d", base, c)
	reg := registry{}
	reg.learn(a, "vm", a.chain("vm", 1, 4))
	reg.learn(a, "other", a.chain("other", 2, 2))
	for n := 1; n < 40; n += 4 {
		m := base.copy()
		a.on(m)
		a.view.killAt, a.view.after = n, n%8 == 1
		r := a.replicate("vm", "other")
		r.until(t, "caught up or dead", func(l Lag) bool { return l.VM == "other" && (caughtUp(l) || errors.Is(l.Err, errKilled)) })
		r.stop()
		reg.mustRestore(d, m, "after a kill")
		a.on(m)
		r = a.replicate("vm", "other")
		r.until(t, "caught up", func(l Lag) bool { return l.VM == "other" && caughtUp(l) })
		r.stop()
		if refs := reg.mustRestore(d, m, "at last"); len(refs) != 2 {
			t.Fatalf("%+v", refs)
		}
	}
}
