//go:build !linux

package host

import "flash/vmm"

// endProcess has nothing to end: engines with processes exist on Linux only.
func endProcess(vmm.Process) {}
