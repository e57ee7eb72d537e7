package blockdelta

// era is a stretch of requests during which no slot was retired. Eras form a list from oldest to newest.
//
// Why a slot retired at the end of era E can be given back once E and all older eras have no requests: a request looks
// places up after it has entered, so one that entered in a later era can't find the slot in any layer; and one that
// entered in E or before has ended.
type era struct {
	requests int
	retired  []place // what ended this era
	next     *era
}

// retire takes slots out of use that no layer names any more. Precondition: o.mu is held.
func (o *Overlay) retire(slots []place) {
	if len(slots) == 0 {
		return
	}
	next := &era{}
	o.newest.retired, o.newest.next = slots, next
	o.newest = next
	o.passEras()
}

// passEras collects the slots of eras that are over. Precondition: o.mu is held.
func (o *Overlay) passEras() {
	for o.oldest != o.newest && o.oldest.requests == 0 {
		o.reclaimable = append(o.reclaimable, o.oldest.retired...)
		o.oldest = o.oldest.next
	}
	if len(o.reclaimable) > 0 && !o.reclaiming && !o.closed {
		o.reclaiming = true
		o.reclaims.Go(o.reclaim) // apart: no guest request should pay for punching holes; Close waits for it
	}
}

func (o *Overlay) reclaim() {
	for {
		o.mu.Lock()
		slots := o.reclaimable
		o.reclaimable = nil
		if len(slots) == 0 {
			o.reclaiming = false
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		o.scratch.release(slots)
	}
}
