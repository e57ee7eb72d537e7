package offsite

import (
	"github.com/zeebo/blake3"

	"flash/cas"
	"flash/store/manifest"
)

// pushedRef is what the bucket has of a VM, as it was last seen: to tell how far behind it is. The zero value: nothing.
type pushedRef struct {
	snapshots map[int]cas.Hash // by checkpoint
	sum       cas.Hash         // of the history's bytes
}

func pushedOf(h *manifest.History) pushedRef {
	p := pushedRef{snapshots: map[int]cas.Hash{}, sum: sumOf(h)}
	for _, c := range h.Checkpoints {
		p.snapshots[c.Number] = c.Snapshot
	}
	return p
}

// sumOf names a history's bytes; zero for one that has none, which no push takes either.
func sumOf(h *manifest.History) cas.Hash {
	p, err := h.Append(nil)
	if err != nil {
		return cas.Hash{}
	}
	return blake3.Sum256(p)
}

func (o *Offsite) notePushed(h *manifest.History) {
	p := pushedOf(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pushed[h.VM] = p
}

func (o *Offsite) forgetPushed(vm string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pushed, vm)
}

// lastPushed gives what was last seen; false: nothing was.
func (o *Offsite) lastPushed(vm string) (pushedRef, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.pushed[vm]
	return p, ok
}
