package host

// hold keeps a snapshot from gc in place of the one that pin kept.
func (g *guestVM) hold(pin *func(), release func()) {
	g.pinMu.Lock()
	defer g.pinMu.Unlock()
	if *pin != nil {
		(*pin)()
	}
	if *pin = release; g.pinsEnded {
		release()
	}
}

func (g *guestVM) endPins() {
	g.pinMu.Lock()
	defer g.pinMu.Unlock()
	g.pinsEnded = true
	for _, release := range []func(){g.memoryPin, g.basePin} {
		if release != nil {
			release()
		}
	}
}
