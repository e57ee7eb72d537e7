// Package bundle builds and imports what a VM boots from: a kernel, an initrd with the guest agent, and a root disk.
//
// A bundle is a snapshot of kind "bundle" with the images kernel, initrd and disk0. The root disk is ext4 without a
// partition table, its blocks chunks like any other, so bundles that share files share chunks where the blocks are equal.
//
// Terms: a package is Debian's (.deb); it is read, never installed here. A tree is a folder that becomes the root disk.
// A layer is one step of a container image, a tar stream that is applied to a tree. Scratch is a folder of one build.
//
// The initrd is a contract with the guest agent: the agent is /init; /modules.list names kernel modules in the order in
// which they are loaded, a line each, relative to /modules. The root disk is the machine's first disk.
//
// Invariants, each held by a test of that name:
//   - nothing outside scratch and the cache is written before the snapshot is committed, and scratch is gone on every
//     path (TestScratchIsGoneOnEveryPath);
//   - no path of an image, and no link in it, leads out of its tree (TestPathsCannotLeaveTheTree);
//   - a layer whose bytes differ from what its image says is refused (TestCorruptLayerIsRefused).
package bundle

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"flash/store"
)

// Config is what building needs.
type Config struct {
	Store    *store.Store
	WorkDir  string                                            // scratch; emptied afterwards
	CacheDir string                                            // downloaded packages; "": flash/packages in the user's cache folder
	Progress func(step string, done, total int64, unit string) // nil: silent

	// Tests put their own here; nil is the agent that flash carries and the kernel that Debian offers.
	agent     func() ([]byte, error)
	getKernel func(context.Context, *builder) (kernel, error)
}

// Result is what was built.
type Result struct {
	Snapshot store.SnapshotID
	NewBytes int64
	DiskMiB  int
	Facts    map[string]string // as in the snapshot's Meta; the keys are the Fact constants
}

// Kinds are the bundles Build knows.
var Kinds = []string{"busybox", "debian"}

// Kinds of failure a caller acts on.
var (
	// ErrUnknownKind: Build was asked for a bundle it doesn't know.
	ErrUnknownKind = errors.New("no such kind of bundle")
	// ErrInvalid: a name, a size or a path in the request makes no sense.
	ErrInvalid = errors.New("not a valid request")
	// ErrUnsupported: this host can't do it; the text says what is missing.
	ErrUnsupported = errors.New("not possible on this host")
	// ErrMissingTool: a program that building needs isn't installed; the text names its package.
	ErrMissingTool = errors.New("a needed program is missing")
	// ErrDownload: packages can't be had, neither from the network nor from the cache.
	ErrDownload = errors.New("packages can't be downloaded")
	// ErrNotImage: what was to be imported is neither a docker-save archive nor an OCI layout.
	ErrNotImage = errors.New("not a container image archive")
	// ErrBadImage: the image is damaged, or made to do harm.
	ErrBadImage = errors.New("the container image is damaged")
	// ErrDiskTooSmall: the files don't fit on a root disk of that size.
	ErrDiskTooSmall = errors.New("the root disk is too small")
	// ErrNoSpace: this host's own disk is full.
	ErrNoSpace = errors.New("no space left for building")
)

// Build builds a known bundle and names it. diskMiB 0: the kind's default.
func Build(ctx context.Context, c Config, kind, name string, diskMiB int) (Result, error) {
	if name == "" {
		name = kind
	}
	if !slices.Contains(Kinds, kind) {
		return Result{}, fmt.Errorf("build bundle: %w: %q; known are %s", ErrUnknownKind, kind, strings.Join(Kinds, ", "))
	}
	r, err := c.produce(ctx, name, diskMiB, func(ctx context.Context, b *builder) (tree, error) {
		if kind == "busybox" {
			return b.busyboxTree(ctx)
		}
		return b.debianTree(ctx)
	})
	if err != nil {
		return Result{}, fmt.Errorf("build bundle %s: %w", name, err)
	}
	return r, nil
}

// Import imports a docker-save archive or an OCI layout (a folder or a tar of one). Archives may be compressed with
// gzip or zstd.
func Import(ctx context.Context, c Config, path, name string, diskMiB int) (Result, error) {
	r, err := c.produce(ctx, name, diskMiB, func(ctx context.Context, b *builder) (tree, error) {
		return b.imageTree(ctx, path, diskMiB)
	})
	if err != nil {
		return Result{}, fmt.Errorf("import bundle %s from %s: %w", name, path, err)
	}
	return r, nil
}

// maxDiskMiB is far above what anyone wants on a VM, and keeps sizes in bytes far below overflow.
const maxDiskMiB = 16 << 20 // 16 TiB

// minDiskMiB leaves room for ext4's own structures.
const minDiskMiB = 32

var bundleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// checkRequest refuses what can't succeed before any work is done.
func checkRequest(name string, diskMiB int) error {
	if !bundleName.MatchString(name) {
		return fmt.Errorf("%w: bundle name %q: a letter or digit, then up to 62 letters, digits, '.', '_' or '-'", ErrInvalid, name)
	}
	if diskMiB != 0 && (diskMiB < minDiskMiB || diskMiB > maxDiskMiB) {
		return fmt.Errorf("%w: root disk of %d MiB: from %d to %d", ErrInvalid, diskMiB, minDiskMiB, maxDiskMiB)
	}
	return nil
}
