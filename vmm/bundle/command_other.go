//go:build !linux

package bundle

import "os/exec"

// prepareChild does nothing here: bundles are only built on Linux (see checkHost).
func prepareChild(*exec.Cmd, bool) {}
