package offsite

import (
	"flash/cas"
	"flash/store/manifest"
)

// pushedRef is what the bucket has of a VM, as it was last seen: to tell how far behind it is.
type pushedRef map[int]cas.Hash // by checkpoint

func (o *Offsite) notePushed(h *manifest.History) {
	p := pushedRef{}
	for _, c := range h.Checkpoints {
		p[c.Number] = c.Snapshot
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pushed[h.VM] = p
}

func (o *Offsite) forgetPushed(vm string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pushed, vm)
}

// pushedOf gives what was last seen; false: nothing was.
func (o *Offsite) pushedOf(vm string) (pushedRef, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.pushed[vm]
	return p, ok
}
