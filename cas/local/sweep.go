package local

import "flash/cas"

// touch notes that a writer referred to h. sweepMu is held for reading.
func (s *Store) touch(h cas.Hash) {
	if s.touched == nil {
		return
	}
	s.touchMu.Lock()
	defer s.touchMu.Unlock()
	s.touched[h] = struct{}{}
}
