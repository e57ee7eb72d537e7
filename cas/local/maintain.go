package local

// maintainLoop seals rotated packs and compacts the index, apart from those who put. Close ends it and waits.
func (s *Store) maintainLoop() {
	defer close(s.maintainDone)
	for range s.maintainWork {
		s.maintain()
	}
}

// maxRotated is how many packs may wait to be sealed before Put lends a hand.
const maxRotated = 4

// wantMaintenance is called after packs were rotated.
func (s *Store) wantMaintenance() {
	s.openMu.Lock()
	waiting := len(s.rotated)
	s.openMu.Unlock()
	if s.inline || waiting > maxRotated {
		s.maintain()
		return
	}
	select {
	case s.maintainWork <- struct{}{}:
	default: // it is awake already
	}
}

// maintain does what is due. What fails is logged and tried again next time: nothing depends on it but speed.
func (s *Store) maintain() {
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	if err := s.sealRotated(); err != nil {
		s.log.Warn("a full pack can't be sealed yet", "err", err)
	}
	if err := s.compactIndex(); err != nil {
		s.log.Warn("the chunk index can't be compacted yet", "err", err)
	}
}
