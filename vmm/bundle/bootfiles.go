package bundle

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// BootRequest says what BootFiles is to make.
type BootRequest struct {
	Flavour string            // of Debian's kernel: "cloud-"; "": the one for real machines
	Modules []string          // kernel modules to load; what they need comes along
	Init    []byte            // the static program that becomes /init
	Files   map[string][]byte // further files of the initrd's root folder, by name
}

// BootFiles is what a machine boots from.
type BootFiles struct {
	Release string // the kernel's, "6.1.0-57-amd64"
	Kernel  []byte
	Initrd  []byte
}

// BootFiles makes a kernel and an initrd, in the form of the package comment, for a machine that isn't a bundle: one that
// has another init and other drivers. Nothing is installed here.
func (c Config) BootFiles(ctx context.Context, r BootRequest) (files BootFiles, err error) {
	b, release, err := c.begin()
	if err != nil {
		return BootFiles{}, err
	}
	defer func() {
		if rerr := release(); rerr != nil && err == nil {
			err = rerr
		}
	}()
	k, err := b.kernelOf(ctx, r.Flavour, r.Modules)
	if err != nil {
		return BootFiles{}, err
	}
	var more []cpioEntry
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		more = append(more, cpioEntry{name: name, mode: cpioFile | 0o644, data: r.Files[name]})
	}
	initrd, err := buildInitrd(r.Init, k.modules, more...)
	if err != nil {
		return BootFiles{}, fmt.Errorf("boot files: %w", err)
	}
	return BootFiles{Release: k.release, Kernel: k.image, Initrd: initrd}, nil
}
