//go:build !linux

package memtest

// Main returns: children are Linux processes.
func Main() {}
