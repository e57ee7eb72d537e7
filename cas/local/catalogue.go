package local

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"flash/cas"
)

const (
	openSuffix = ".open"
	packSuffix = ".pack"
	runSuffix  = ".run"
	tmpSuffix  = ".tmp"

	quarantineSuffix = ".quarantine" // behind the name a damaged pack had: nothing reads it, nothing removes it
)

func baseName(path string) string { return filepath.Base(path) }

// catalogue is which packs there are. It is derived from the folder at open.
type catalogue struct {
	mu    sync.RWMutex // guards the rest
	packs map[cas.PackID]*packFile
}

// byID gives nil for a pack that isn't there.
func (c *catalogue) byID(id cas.PackID) *packFile {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.packs[id]
}

func (c *catalogue) add(p *packFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.packs[p.id] = p
}

func (c *catalogue) remove(p *packFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.packs, p.id)
}

// all gives the packs, oldest first.
func (c *catalogue) all() []*packFile {
	c.mu.RLock()
	packs := make([]*packFile, 0, len(c.packs))
	for _, p := range c.packs {
		packs = append(packs, p)
	}
	c.mu.RUnlock()
	slices.SortFunc(packs, comparePacks)
	return packs
}

// comparePacks orders by age, and by id where that is equal.
func comparePacks(a, b *packFile) int {
	if c := a.created.Compare(b.created); c != 0 {
		return c
	}
	return strings.Compare(string(a.id[:]), string(b.id[:]))
}
