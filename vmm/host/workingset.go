package host

import (
	"context"

	"flash/store"
)

const (
	// workingSetPages bounds what is brought in before a guest runs: 4,096 pages take some tens of milliseconds.
	workingSetPages = 4096
	// workingSetDepth is how many ancestors are asked for what a guest like this one touched, recentDepth for what changed
	// since, and recentPages bounds a change that is worth it: more is data passing through, not a page in use.
	workingSetDepth = 64
	recentDepth     = 8
	recentPages     = 1024
	// tellingPages is from how many pages on a set tells of a guest's first moments: less means that a sibling had brought
	// them in before.
	tellingPages = 256
)

// workingSet guesses which pages a guest restored from snap touches first: what an earlier restore of it did touch; else
// what its nearest ancestor with a record touched, or, without one, the last guest of this VM or of the one it was forked
// from: kernel and agent stay where they are from boot on. After that the pages that changed most recently, since a page
// just written is a page in use. It is advice, so errors end it early and nothing else.
func (h *Host) workingSet(ctx context.Context, b bring) []uint64 {
	snap := b.snap
	var recent []uint64
	for depth := range workingSetDepth {
		known, err := h.store.WorkingSet(ctx, snap.ID())
		if err != nil {
			return nil
		}
		if known != nil {
			return firstPages(known, recent)
		}
		parent, err := h.store.Snapshot(ctx, snap.Parent())
		if err != nil || parent.Meta().Kind != kindCheckpoint {
			break
		}
		if depth < recentDepth {
			recent = append(recent, changedPages(ctx, snap, parent)...)
		}
		snap = parent
	}
	return firstPages(h.touchedLately(b), recent)
}

// changedPages are those that changed from a checkpoint to the next, unless they are too many to tell anything.
func changedPages(ctx context.Context, snap, parent *store.Snapshot) (pages []uint64) {
	now, err := snap.Image(ctx, "mem")
	if err != nil {
		return nil
	}
	before, err := parent.Image(ctx, "mem")
	if err != nil {
		return nil
	}
	for page, err := range now.Diff(ctx, before) {
		if err != nil || len(pages) == recentPages {
			return nil
		}
		pages = append(pages, page)
	}
	return pages
}

// firstPages joins lists, each page once, up to workingSetPages.
func firstPages(lists ...[]uint64) (pages []uint64) {
	seen := map[uint64]bool{}
	for _, list := range lists {
		for _, page := range list {
			if len(pages) < workingSetPages && !seen[page] {
				seen[page] = true
				pages = append(pages, page)
			}
		}
	}
	return pages
}

// touchedLately is what the last guest of the VM, or of the one it was forked from, touched first; nil if there was none.
func (h *Host) touchedLately(b bring) []uint64 {
	names := []string{b.id}
	if b.hw.From != nil {
		names = append(names, b.hw.From.VM)
	}
	for _, name := range names {
		if v := h.named(name); v != nil {
			v.mu.Lock()
			touched := v.touched
			v.mu.Unlock()
			if touched != nil {
				return touched
			}
		}
	}
	return nil
}

// named is a VM, or nil.
func (h *Host) named(id string) *vm {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.vms[id]
}

// rememberWorkingSet keeps what a restored guest touched until its first checkpoint or its end.
func (h *Host) rememberWorkingSet(ctx context.Context, g *guestVM) {
	if g.restoredFrom == (store.SnapshotID{}) {
		return
	}
	from := g.restoredFrom
	g.restoredFrom = store.SnapshotID{}
	used, known := g.machine.Used(g.broughtIn)
	if !known {
		used = g.broughtIn
	}
	touched := firstPages(used, g.machine.Touched())
	if len(touched) == 0 {
		return
	}
	if v := h.named(g.id); v != nil && len(touched) >= tellingPages {
		v.mu.Lock()
		v.touched = touched
		v.mu.Unlock()
	}
	if known, err := h.store.WorkingSet(ctx, from); err != nil || known != nil {
		return
	}
	if err := h.store.SetWorkingSet(ctx, from, touched); err != nil {
		h.log.Warn("working set not kept", "vm", g.id, "cause", err)
	}
}
