//go:build !linux

package bench

// guestPSS has nothing to read: machines with memory files exist on Linux only.
func guestPSS(int) (float64, bool) { return 0, false }
