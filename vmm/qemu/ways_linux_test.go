package qemu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"flash/memtrack"
	"flash/vmm"
)

// sameAs compares all memory of a paused machine with an image.
func (g *guest) sameAs(want image, when string) {
	g.t.Helper()
	const batch = 1024
	got, page := make([]byte, batch*memtrack.PageBytes), make([]byte, memtrack.PageBytes)
	for first := uint64(0); first < want.Slots(); first += batch {
		pages := make([]uint64, min(batch, want.Slots()-first))
		for i := range pages {
			pages[i] = first + uint64(i)
		}
		view := got[:len(pages)*memtrack.PageBytes]
		if err := g.Memory().View(g.t.Context(), pages, view); err != nil {
			g.t.Fatal(err)
		}
		for i, number := range pages {
			want.ReadSlot(g.t.Context(), number, page)
			if !bytes.Equal(view[i*memtrack.PageBytes:][:memtrack.PageBytes], page) {
				g.t.Fatalf("%s: page %d of %d differs", when, number, want.Slots())
			}
		}
	}
}

// savedAndRestored boots, checkpoints twice and restores; what was put together from the cuts must be what the booted machine
// held, and what the restored one holds. It gives the last checkpoint.
func savedAndRestored(t *testing.T, e *Engine) snapshot {
	t.Helper()
	spec := testSpec(t)
	g := boot(t, e, spec, vmm.Attach{})
	s := snapshot{spec: spec, memory: make(image, spec.MemBytes/memtrack.PageBytes)}
	s = g.checkpoint(s, nil)
	first := s.pages
	g.wants("x", count(2))
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, unsettled := g.taken(s)
	if unsettled {
		t.Fatal("the machine wrote to its memory while it was paused")
	}
	g.sameAs(s.memory, "the booted machine, against what its cuts add up to")
	g.Close()
	t.Logf("cuts of %d and %d pages by %s; state of %d bytes", first, s.pages, g.Tracker().Name(), len(s.state.Data))
	if s.pages > first {
		t.Errorf("the second cut has %d pages, more than the first: %d", s.pages, first)
	}
	if s.state.Facts == (vmm.Facts{}) {
		t.Error("the state carries no facts")
	}

	r := restore(t, e, s, vmm.Attach{})
	r.sameAs(s.memory, "the restored machine, before it ran")
	r.resume()
	r.wants("x", count(3))
	r.wants("x", count(4))
	next := r.checkpoint(s, nil) // its memory descends from what was restored
	r.Close()
	again := restore(t, e, next, vmm.Attach{})
	again.resume()
	again.wants("x", count(5))
	again.Close()
	return s
}

// taken saves a paused machine without letting it go on.
func (g *guest) taken(before snapshot) (next snapshot, unsettled bool) {
	g.t.Helper()
	d, err := g.Tracker().Cut(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	next = snapshot{spec: before.spec, disk: before.disk, pages: d.Len(), memory: before.memory.with(g.t, collect(d.Slots()), d)}
	next.state, err = g.SaveState(g.t.Context())
	if errors.Is(err, vmm.ErrUnsettled) {
		return next, true
	}
	if err != nil {
		g.t.Fatal(err)
	}
	d.Commit()
	return next, false
}

func TestMachineIsSavedAndRestoredInEveryWay(t *testing.T) {
	for _, way := range []string{"eager", "hash-compare", "eager,hash-compare", "soft-dirty", "eager,soft-dirty"} {
		t.Run(way, func(t *testing.T) {
			e := testEngine(t, Config{PoolSize: -1, Memory: way})
			caps, err := e.Probe(t.Context())
			if errors.Is(err, vmm.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			eager, tracker := strings.Contains(way, "eager"), way[strings.LastIndex(way, ",")+1:]
			if eager && (caps.LazyPager || caps.Shared || caps.Reasons["lazy memory"] == "") || tracker != "eager" && caps.Tracker != tracker {
				t.Fatalf("%+v", caps)
			}
			savedAndRestored(t, e)
		})
	}
}

func TestUnknownRestrictionOfMemoryIsRefused(t *testing.T) {
	for _, way := range []string{"lazy", "eager,", "soft-dirty,hash-compare"} {
		if _, err := New(Config{Memory: way}); err == nil || errors.Is(err, vmm.ErrUnsupported) {
			t.Errorf("%q: %v", way, err)
		}
	}
}
