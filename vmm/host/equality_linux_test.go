package host

import (
	"context"
	"fmt"
	"testing"

	"github.com/zeebo/blake3"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/store"
	"flash/vmm"
)

// instant is what a machine is at one moment: hashes of all its memory and all its disk.
type instant struct{ memory, disk [32]byte }

// look hashes a paused guest's memory and disk, bringing in whatever is absent.
func look(t *testing.T, g *guestVM) (at instant) {
	t.Helper()
	const batch = 1024
	hash := blake3.New()
	mem := g.machine.Memory()
	pages := make([]uint64, 0, batch)
	data := make([]byte, batch*memtrack.PageBytes)
	for first := uint64(0); first < mem.Pages(); first += batch {
		pages = pages[:0]
		for page := first; page < min(first+batch, mem.Pages()); page++ {
			pages = append(pages, page)
		}
		part := data[:len(pages)*memtrack.PageBytes]
		if err := mem.View(t.Context(), pages, part); err != nil {
			t.Fatal(err)
		}
		hash.Write(part)
	}
	copy(at.memory[:], hash.Sum(nil))
	hash.Reset()
	disk := g.disks[0].Overlay
	for off := uint64(0); off < disk.Bytes(); off += uint64(len(data)) {
		part := data[:min(uint64(len(data)), disk.Bytes()-off)]
		if err := disk.ReadAt(t.Context(), part, int64(off)); err != nil {
			t.Fatal(err)
		}
		hash.Write(part)
	}
	copy(at.disk[:], hash.Sum(nil))
	return at
}

// checkpointLooked takes a checkpoint and says what the machine was at its instant.
func (v *testVM) checkpointLooked() (int, instant) {
	v.t.Helper()
	ctx := v.t.Context()
	live := v.h.vms[v.id]
	g := v.h.running(live)
	c, err := v.h.takeCut(ctx, g, true)
	if err != nil {
		v.t.Fatal(err)
	}
	at := look(v.t, g)
	entry, _, err := v.h.save(ctx, live, g, c, store.Ordinary, store.Move{VM: v.id, ExpectHead: g.head, Label: "looked at"})
	if err != nil {
		v.t.Fatal(err)
	}
	v.h.rebase(ctx, g, c, entry)
	if err := c.resume(ctx); err != nil {
		v.t.Fatal(err)
	}
	return entry.Number, at
}

// loaded gives a machine that stands paused at a checkpoint, untouched.
func (v *testVM) loaded(n int) *guestVM {
	v.t.Helper()
	_, snap, err := v.h.target(v.t.Context(), v.id, n)
	if err != nil {
		v.t.Fatal(err)
	}
	g, err := v.h.load(v.t.Context(), bring{id: v.id, hw: v.h.vms[v.id].hw, snap: snap, head: n})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { v.h.abandon(g) })
	return g
}

// TestARestoredMachineIsTheOneThatWasSaved: all memory and all of the disk, at the first, the tenth and a branched
// checkpoint, right after the lazy restore and before any page was touched.
func TestARestoredMachineIsTheOneThatWasSaved(t *testing.T) {
	for _, memMiB := range []int{256, 5 << 10} { // 5 GiB: memory on both sides of the hole below 4 GiB
		t.Run(fmt.Sprintf("%d MiB", memMiB), func(t *testing.T) {
			h := needGuests(t)
			v := runVM(t, h, fmt.Sprintf("equal-%d", memMiB), memMiB)
			was := map[int]instant{}
			note := func() int {
				n, at := v.checkpointLooked()
				was[n] = at
				return n
			}
			first := note()
			tenth := first
			for i := range 9 {
				v.sh(fmt.Sprintf("echo %d > /root/file-%d; sync; yes %d | head -c 300000 > /dev/shm/noise", i, i, i))
				tenth = note()
			}
			v.rewind(first)
			v.sh("echo another way > /root/branch; sync")
			branched := note()
			for _, n := range []int{first, tenth, branched} {
				g := v.loaded(n)
				if got := look(t, g); got != was[n] {
					t.Errorf("checkpoint %d: memory equal %v, disk equal %v", n, got.memory == was[n].memory, got.disk == was[n].disk)
				}
				h.abandon(g)
			}
			if was[first] == was[tenth] || was[tenth] == was[branched] {
				t.Error("checkpoints that differ look the same: the test sees nothing")
			}
		})
	}
}

// TestACheckpointRightAfterALazyRestoreIsComplete: nothing was touched, so nothing is new, and what is saved is whole.
func TestACheckpointRightAfterALazyRestoreIsComplete(t *testing.T) {
	h := needGuests(t)
	v := runVM(t, h, "complete", 256)
	v.sh("yes something | head -c 4000000 > /dev/shm/something")
	n, was := v.checkpointLooked()
	g := v.loaded(n)
	ctx := context.WithoutCancel(t.Context())
	mem, err := g.machine.Tracker().Cut(ctx)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := g.disks[0].Overlay.Cut(ctx)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := h.store.Checkpoint(ctx, v.id, n)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := h.save(ctx, h.vms[v.id], g, &cut{mem: mem, disks: []*blockdelta.Delta{disk}, state: mustState(t, g, entry.Snapshot, h)}, store.Ordinary, store.Move{VM: v.id, ExpectHead: n, KeepHead: true, Label: "again"})
	if err != nil {
		t.Fatal(err)
	}
	mem.Rollback()
	disk.Rollback()
	h.abandon(g)
	if got := look(t, v.loaded(again.Number)); got != was {
		t.Errorf("memory equal %v, disk equal %v", got.memory == was.memory, got.disk == was.disk)
	}
	if again.NewBytes > 16<<10 {
		t.Errorf("a checkpoint with nothing new took %d bytes", again.NewBytes)
	}
}

// mustState gives the state a paused, just restored machine was loaded from.
func mustState(t *testing.T, g *guestVM, id store.SnapshotID, h *Host) (s vmm.State) {
	t.Helper()
	snap, err := h.store.Snapshot(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	im, err := snap.Image(t.Context(), "state")
	if err != nil {
		t.Fatal(err)
	}
	if s.Data, err = im.ReadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Facts, err = factsOf(snap.Meta()); err != nil {
		t.Fatal(err)
	}
	return s
}
