package host

import (
	"context"

	"flash/store"
)

const (
	// workingSetPages bounds what is brought in before a guest runs: 4,096 pages take some tens of milliseconds.
	workingSetPages = 4096
	// workingSetDepth is how many ancestors are asked for what a guest like this one touched.
	workingSetDepth = 8
)

// workingSet guesses which pages a guest restored from snap touches first: what an earlier restore of it did touch; else
// what its nearest ancestor with a record touched, and before that the pages that changed most recently, since a page
// just written is a page in use. It is advice, so errors end it early and nothing else.
func (h *Host) workingSet(ctx context.Context, snap *store.Snapshot) []uint64 {
	var pages []uint64
	seen := map[uint64]bool{}
	add := func(page uint64) bool {
		if !seen[page] {
			seen[page] = true
			pages = append(pages, page)
		}
		return len(pages) < workingSetPages
	}
	for depth := 0; depth < workingSetDepth; depth++ {
		known, err := h.store.WorkingSet(ctx, snap.ID())
		if err != nil {
			return pages
		}
		for _, page := range known {
			if !add(page) {
				return pages
			}
		}
		if known != nil {
			return pages
		}
		parent, err := h.store.Snapshot(ctx, snap.Parent())
		if err != nil || parent.Meta().Kind != kindCheckpoint {
			return pages
		}
		now, err := snap.Image(ctx, "mem")
		if err != nil {
			return pages
		}
		before, err := parent.Image(ctx, "mem")
		if err != nil {
			return pages
		}
		for page, err := range now.Diff(ctx, before) {
			if err != nil || !add(page) {
				return pages
			}
		}
		snap = parent
	}
	return pages
}

// rememberWorkingSet keeps what a restored guest touched until its first checkpoint or its end.
func (h *Host) rememberWorkingSet(ctx context.Context, g *guestVM) {
	if g.restoredFrom == (store.SnapshotID{}) {
		return
	}
	from := g.restoredFrom
	g.restoredFrom = store.SnapshotID{}
	touched := append(g.broughtIn, g.machine.Touched()...)
	if len(touched) > workingSetPages {
		touched = touched[:workingSetPages]
	}
	if len(touched) == 0 {
		return
	}
	if known, err := h.store.WorkingSet(ctx, from); err != nil || known != nil {
		return
	}
	if err := h.store.SetWorkingSet(ctx, from, touched); err != nil {
		h.log.Warn("working set not kept", "vm", g.id, "cause", err)
	}
}
