// Package bundle builds and imports what a VM boots from: a kernel, an initrd with the guest agent, and a root disk.
//
// A bundle is a snapshot of kind "bundle" with the images kernel, initrd and disk0. The root disk is ext4, its blocks
// chunks like any other, so bundles that share files share chunks where the blocks are equal.
package bundle

import (
	"context"

	"flash/store"
)

// Config is what building needs.
type Config struct {
	Store    *store.Store
	CacheDir string                                            // packages fetched once, kept
	WorkDir  string                                            // scratch; emptied afterwards
	Progress func(step string, done, total int64, unit string) // nil: silent
}

// Result is what was built.
type Result struct {
	Snapshot store.SnapshotID
	NewBytes int64
	DiskMiB  int
}

// Kinds are the bundles Build knows.
var Kinds = []string{"busybox", "debian"}

// Build builds a known bundle and names it. diskMiB 0: the kind's default.
func Build(ctx context.Context, c Config, kind, name string, diskMiB int) (Result, error) {
	panic("contract")
}

// Import imports a docker-save archive or an OCI layout (a folder or a tar of one).
func Import(ctx context.Context, c Config, path, name string, diskMiB int) (Result, error) {
	panic("contract")
}
