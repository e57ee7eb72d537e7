//go:build !linux

package bundle

import (
	"fmt"
	"os"
)

// checkHost refuses: building needs ext4's tools, device files, owners and xattrs as Linux has them.
func checkHost() error {
	return fmt.Errorf("%w: bundles are built on Linux; pull one that was built there", ErrUnsupported)
}

func lockScratch(dir string) (*os.File, error) { return os.Open(dir) }

func detachMounts(string) error { return nil }
