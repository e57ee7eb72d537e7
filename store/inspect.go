package store

import (
	"context"
	"errors"
	"slices"

	"flash/cas"
)

// Inspected is where snapshots are inspected: any cas.Store, and a far tier.
type Inspected interface {
	ChunkReader
	Has(ctx context.Context, hs []cas.Hash) ([]bool, error)
}

// Inspection is what was found of some snapshots.
type Inspection struct {
	Snapshots int       `json:"snapshots"` // walked whole
	Nodes     int       `json:"nodes"`
	Chunks    int64     `json:"chunks"` // data chunks, whose presence was asked for
	Findings  []Finding `json:"findings"`
}

// Inspect says what of some snapshots can't be had from a store, and which names that touches. Damages are what a reading
// of its packs has found; one that nothing names is harmless.
func Inspect(ctx context.Context, from Inspected, names map[SnapshotID][]Name, damages []cas.Damage, progress func(step string, done, total int64)) (Inspection, error) {
	in := newInspector(from)
	for _, d := range damages {
		in.damage(d)
	}
	err := in.snapshots(ctx, names, progress)
	for i := range in.r.Findings {
		if f := &in.r.Findings[i]; f.Touches == nil {
			f.Touches = []Name{}
		}
	}
	return in.r, err
}

type inspector struct {
	from Inspected
	r    Inspection
	at   map[cas.Hash]int // chunk → its finding
}

func newInspector(from Inspected) *inspector {
	return &inspector{from: from, r: Inspection{Findings: []Finding{}}, at: map[cas.Hash]int{}}
}

// damage notes what a pack's bytes show. Whether it matters the walk will tell.
func (in *inspector) damage(d cas.Damage) {
	f := Finding{Severity: Harmless, Kind: "pack", Pack: d.Pack, Offset: d.Offset, Hash: d.Hash, Reason: d.Err.Error()}
	if !d.Hash.IsZero() {
		f.Kind = "chunk"
		if _, ok := in.at[d.Hash]; !ok {
			in.at[d.Hash] = len(in.r.Findings)
		}
	}
	in.found(f)
}

func (in *inspector) found(f Finding) { in.r.Findings = append(in.r.Findings, f) }

// snapshots walks everything that has a name.
func (in *inspector) snapshots(ctx context.Context, names map[SnapshotID][]Name, progress func(step string, done, total int64)) error {
	t := newTracer(ctx, in.from)
	t.has, t.missed = in.from.Has, in.missed
	for h, i := range in.at {
		// A good copy in another pack, or a damage that wasn't there a moment ago: nothing is lost.
		if _, err := in.from.Get(ctx, cas.Ref{Hash: h}, nil); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t.wanted[h] = i
		} else {
			in.r.Findings[i].Reason += "; another copy is good"
		}
	}
	ids := inOrder(names)
	for done, id := range ids {
		progress("walk snapshots", int64(done), int64(len(ids)))
		if err := in.snapshot(ctx, t, id, names[id]); err != nil {
			return err
		}
	}
	in.r.Nodes, in.r.Chunks = len(t.clean)+len(t.tainted), t.data
	return nil
}

func (in *inspector) snapshot(ctx context.Context, t *tracer, id SnapshotID, names []Name) error {
	in.r.Snapshots++
	var found marks
	record, err := readRecord(ctx, in.from, id)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, cas.ErrUnavailable): // what can't be asked for isn't missing
		return err
	case err != nil:
		found.add(in.missed(id, err))
	default:
		for _, im := range record.Images {
			m, err := t.image(im)
			if err != nil {
				return err
			}
			found.add(m...)
		}
	}
	for _, i := range found {
		in.r.Findings[i].Severity = Damage
		for _, n := range names {
			if !slices.Contains(in.r.Findings[i].Touches, n) {
				in.r.Findings[i].Touches = append(in.r.Findings[i].Touches, n)
			}
		}
	}
	return nil
}

// missed notes a chunk that can't be had.
func (in *inspector) missed(h cas.Hash, err error) int {
	if i, ok := in.at[h]; ok {
		return i
	}
	f := Finding{Severity: Harmless, Kind: "missing", Hash: h, Reason: err.Error()}
	var corrupt *cas.CorruptError
	if errors.As(err, &corrupt) {
		f.Kind, f.Pack, f.Offset, f.Reason = "chunk", corrupt.Pack, corrupt.Offset, corrupt.Reason
	}
	in.at[h] = len(in.r.Findings)
	in.found(f)
	return in.at[h]
}
