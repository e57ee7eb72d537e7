package host

import "time"

// adopt makes g the VM's guest and watches over it. Precondition: the caller holds the VM.
func (h *Host) adopt(v *vm, g *guestVM) error {
	h.mu.Lock()
	if h.gone {
		h.mu.Unlock()
		h.abandon(g)
		return shuttingDown()
	}
	h.watchers.Add(1)
	h.mu.Unlock()
	v.mu.Lock()
	v.guest, v.cameUp = g, h.now()
	v.mu.Unlock()
	h.setState(v, status{State: StateRunning, Process: g.machine.Process()})
	go h.watch(v, g)
	return nil
}

// watch waits for the end of a guest and settles it, unless the host ended it on purpose. Meanwhile it bounds its console.
func (h *Host) watch(v *vm, g *guestVM) {
	defer h.watchers.Done()
	tick := time.NewTicker(consoleInterval)
	defer tick.Stop()
	for !g.ended() {
		select {
		case <-g.machine.Done():
		case lost := <-g.diskLost:
			g.lose(lost.Error())
		case <-tick.C:
			if err := trimConsole(h.consolePath(v.id)); err != nil {
				h.log.Warn("console not trimmed", "vm", v.id, "cause", err)
			}
		}
	}
	if g.closing.Load() {
		return
	}
	h.noteEnd(v, g)
	<-v.op // whoever holds it may still be storing what it has cut
	h.abandon(g)
	v.unlock()
}

// noteEnd says what has become of a VM whose guest has ended by itself. Afterwards g isn't its guest.
func (h *Host) noteEnd(v *vm, g *guestVM) {
	v.mu.Lock()
	if v.guest != g {
		v.mu.Unlock()
		return
	}
	s := g.endStatus()
	v.guest, v.state = nil, s
	v.mu.Unlock()
	h.log.Warn("guest ended", "vm", v.id, "reason", s.Reason, "detail", g.machine.Exit().Detail)
	h.record(v)
	h.keep(v)
}

// letGo ends a VM's guest on purpose and says why. Precondition: what it held is saved, or given up.
func (h *Host) letGo(v *vm, g *guestVM, s status) {
	g.closing.Store(true)
	v.mu.Lock()
	if v.guest == g {
		v.guest = nil
	}
	v.state = s
	v.mu.Unlock()
	h.abandon(g)
	h.record(v)
}

// discard ends a guest, if there is one, without saving it, and says why.
func (h *Host) discard(v *vm, s status) {
	if g := h.running(v); g != nil {
		s.State = StateStopped
		h.letGo(v, g, s)
	}
}
