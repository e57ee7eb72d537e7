package offsite

import (
	"slices"
	"testing"

	"flash/cas"
	"flash/store"
)

func TestWorkingSetsTravelWithTheVM(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	a.chain("vm", 1, 1)
	at, err := a.s.Checkpoint(t.Context(), "vm", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []uint64{7, 3, 1 << 20, 4}
	if err := a.s.SetWorkingSet(t.Context(), at.Snapshot, want); err != nil {
		t.Fatal(err)
	}
	a.push("vm")
	if _, err := b.Pull(t.Context(), PullRequest{VM: "vm", Lazy: true}); err != nil {
		t.Fatal(err)
	}
	got, err := b.s.WorkingSet(t.Context(), at.Snapshot)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("working set %v, %v; want %v", got, err, want)
	}
}

func FuzzWorkingSets(f *testing.F) {
	f.Add(encodeObject(workingSets{object{kindSets, objectFormat}, []workingSet{setOf(cas.Hash{1}, []uint64{5, 2, 9})}}))
	f.Add([]byte(`{"flash":"working-sets","format":1,"sets":[{"snapshot":"00","distances":[-1]}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		var sets workingSets
		if decodeObject(p, kindSets, &sets) != nil {
			return
		}
		for i := range sets.Sets {
			slots, err := sets.Sets[i].slots()
			if err != nil {
				continue
			}
			if len(slots) > store.MaxWorkingSet {
				t.Fatal("more pages than are kept")
			}
			if again := setOf(sets.Sets[i].Snapshot, slots); !slices.Equal(again.Distances, sets.Sets[i].Distances) {
				t.Fatalf("%v came back as %v", sets.Sets[i].Distances, again.Distances)
			}
		}
	})
}
