package offsite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
	"flash/store/manifest"
)

// What restores of a VM's checkpoints touched first lies beside its ref, so that a host that restores one from afar knows
// what to fetch before the guest asks. It is advice: it is put after the ref, over whatever is there, and where it is missing,
// damaged or of another checkpoint a restore is slower and nothing else.

const (
	setsPrefix   = "sets/"
	kindSets     = "working-sets"
	maxSets      = 16 // the newest checkpoints' that have one
	maxSetsBytes = 4 << 20
)

func setsKey(vm string) string { return setsPrefix + escape(vm) }

// workingSets is the object: of each snapshot, pages of memory as distances, each from the one before, in order of first touch.
type workingSets struct {
	object
	Sets []workingSet `json:"sets"`
}

type workingSet struct {
	Snapshot  cas.Hash `json:"snapshot"`
	Distances []int64  `json:"distances"`
}

func decodeSets(p []byte) (sets workingSets, err error) {
	if err := decodeObject(p, kindSets, &sets); err != nil {
		return sets, err
	}
	if len(sets.Sets) > maxSets {
		return sets, fmt.Errorf("%d working sets: %w", len(sets.Sets), ErrFormat)
	}
	return sets, nil
}

func setOf(id cas.Hash, slots []uint64) workingSet {
	s := workingSet{Snapshot: id, Distances: make([]int64, len(slots))}
	last := uint64(0)
	for i, slot := range slots {
		s.Distances[i] = int64(slot - last)
		last = slot
	}
	return s
}

// slots is setOf's inverse; too many, or one that no image has, are refused.
func (s *workingSet) slots() ([]uint64, error) {
	if len(s.Distances) > store.MaxWorkingSet {
		return nil, fmt.Errorf("%d pages: %w", len(s.Distances), ErrFormat)
	}
	slots := make([]uint64, len(s.Distances))
	last := uint64(0)
	for i, d := range s.Distances {
		if last += uint64(d); last >= manifest.MaxImageBytes/cas.SlotBytes {
			return nil, fmt.Errorf("page %d: %w", last, ErrFormat)
		}
		slots[i] = last
	}
	return slots, nil
}

// pushSets puts a VM's working sets, unless this process has put the same ones already.
func (o *Offsite) pushSets(ctx context.Context, h *manifest.History) error {
	sets := workingSets{object: object{kindSets, objectFormat}}
	for _, c := range slices.Backward(h.Checkpoints) {
		slots, err := o.c.Store.WorkingSet(ctx, c.Snapshot)
		if err != nil {
			return err
		}
		if slots == nil {
			continue
		}
		if sets.Sets = append(sets.Sets, setOf(c.Snapshot, slots)); len(sets.Sets) == maxSets {
			break
		}
	}
	if len(sets.Sets) == 0 {
		return nil
	}
	p := encodeObject(sets)
	sum := o.sumOf(p)
	o.mu.Lock()
	known := o.sets[h.VM] == sum
	o.mu.Unlock()
	if known {
		return nil
	}
	if _, err := o.c.Bucket.Put(ctx, setsKey(h.VM), bytes.NewReader(p), int64(len(p)), bucket.Condition{}); err != nil {
		return err
	}
	o.mu.Lock()
	o.sets[h.VM] = sum
	o.mu.Unlock()
	return nil
}

// pullSets remembers the working sets of a VM in the bucket whose snapshots have none here.
func (o *Offsite) pullSets(ctx context.Context, h *manifest.History) error {
	p, _, err := o.c.Bucket.Get(ctx, setsKey(h.VM), maxSetsBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	sets, err := decodeSets(p)
	if err != nil {
		return err
	}
	ours := map[cas.Hash]bool{}
	for _, c := range h.Checkpoints {
		ours[c.Snapshot] = true
	}
	for i := range sets.Sets {
		s := &sets.Sets[i]
		if !ours[s.Snapshot] {
			continue
		}
		slots, err := s.slots()
		if err != nil {
			return err
		}
		if known, err := o.c.Store.WorkingSet(ctx, s.Snapshot); err != nil || known != nil {
			continue
		}
		if err := o.c.Store.SetWorkingSet(ctx, s.Snapshot, slots); err != nil {
			return err
		}
	}
	return nil
}

// advise does what costs speed only when it fails.
func (o *Offsite) advise(what string, err error) {
	if err != nil {
		o.c.Log.Warn("working sets don't travel", "remote", o.c.Name, "step", what, "cause", err)
	}
}

func (o *Offsite) sumOf(p []byte) cas.Hash { return o.c.Packs.Hasher().Sum(p) }
