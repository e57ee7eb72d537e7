//go:build linux

package memtest

import "unsafe"

// addressOf is where mapped memory lies.
// SAFETY: mapped memory doesn't move.
func addressOf(mapped []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mapped[0]))) }
