//go:build !linux

package pagemap

import (
	"fmt"

	"flash/memtrack"
)

// Probe says that there is no /proc/PID/pagemap here.
func Probe() error { return fmt.Errorf("pagemap-scan: only Linux has it: %w", memtrack.ErrUnsupported) }

// ProbeSoftDirty says that there is no /proc/PID/clear_refs here.
func ProbeSoftDirty() error {
	return fmt.Errorf("soft-dirty: only Linux has it: %w", memtrack.ErrUnsupported)
}
