package host

import (
	"fmt"
	"os"
	"path/filepath"

	"flash/vmm/bundle"
)

const scratchName = "scratch"

// scratchDir is where overlays keep what a guest writes and bundles are built.
func (h *Host) scratchDir() string { return filepath.Join(h.cfg.Home, scratchName) }

// halfMade are the files that are made under another name first, or live without one: by these names only until their
// maker was killed. By folder of the home.
var halfMade = map[string]string{"boot": "new-*", scratchName: "*.scratch"}

// sweep removes what a host that was killed has left in its home. Precondition: no other host uses it.
func sweep(home string) error {
	for folder, pattern := range halfMade {
		dir := filepath.Join(home, folder)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("what an earlier daemon left: %w", err)
		}
		for _, e := range entries {
			if half, _ := filepath.Match(pattern, e.Name()); !half {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("what an earlier daemon left: %w", err)
			}
		}
	}
	return bundle.SweepScratch(filepath.Join(home, scratchName))
}
