//go:build !linux

package host

// standBack does nothing: elsewhere threads have no priority of their own that is this cheap to set.
func standBack(int) {}
