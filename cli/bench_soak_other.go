//go:build !linux

package cli

import (
	"flash/bench"
	"flash/vmm/host"
)

// newDaemonPlace finds and kills processes by what Linux tells of them.
func newDaemonPlace(string) (bench.Place, error) {
	return nil, host.Errorf(host.CodeUnsupported, "use a Linux host", "a soak kills and counts processes by what /proc tells of them")
}
