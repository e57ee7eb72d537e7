package cli

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"flash/store"
	"flash/vmm"
	"flash/vmm/bundle"
	"flash/vmm/fake"
	"flash/vmm/host"
)

// openFake opens a home as open does, over the fake engine: a real host and a real store, whose machines are functions.
// FLASH_TEST_OPEN chooses others: broken is a home that can't be opened, panic a daemon that dies without an error, api
// the fake of demos, and real the real engine.
func openFake(ctx context.Context, home string, log *slog.Logger) (host.API, io.Closer, error) {
	switch os.Getenv("FLASH_TEST_OPEN") {
	case "broken":
		return nil, nil, host.Errorf(host.CodeCorrupt, "flash check finds out more", "the store at %s is damaged", filepath.Base(home))
	case "panic":
		panic("a bug in opening")
	case "api":
		h := newFakeHost()
		return h, h, nil
	case "real":
		return open(ctx, home, log)
	}
	p, err := openParts(ctx, home, log, func(string, *slog.Logger) (vmm.Engine, error) { return fake.New(fake.Config{}), nil })
	if err != nil {
		return nil, nil, err
	}
	return fakeBuilder{p.host, p.store}, p, nil
}

// fakeBuilder is a host that needs neither root nor packages for its bundles: the fake engine looks at none of them.
type fakeBuilder struct {
	*host.Host
	store *store.Store
}

func (b fakeBuilder) BuildBundle(ctx context.Context, r host.BuildRequest, progress func(host.Progress)) (host.Bundle, error) {
	if !slices.Contains(bundle.Kinds, r.Kind) {
		return b.Host.BuildBundle(ctx, r, progress)
	}
	if r.Name == "" {
		r.Name = r.Kind
	}
	return b.make(ctx, r.Name, "build "+r.Kind, r.DiskMiB, progress)
}

func (b fakeBuilder) ImportBundle(ctx context.Context, r host.ImportRequest, progress func(host.Progress)) (host.Bundle, error) {
	if _, err := os.Stat(r.Path); err != nil {
		return b.Host.ImportBundle(ctx, r, progress)
	}
	return b.make(ctx, r.Name, "import "+filepath.Base(r.Path), r.DiskMiB, progress)
}

func (b fakeBuilder) make(ctx context.Context, name, source string, diskMiB int, progress func(host.Progress)) (host.Bundle, error) {
	if progress != nil {
		progress(host.Progress{Step: "root disk", Done: 1, Total: 2, Unit: "files"})
		progress(host.Progress{Step: "store", Done: 4096, Total: 4096, Unit: "bytes"})
	}
	txn, err := b.store.Begin(ctx, store.SnapshotID{})
	if err != nil {
		return host.Bundle{}, err
	}
	defer txn.Abort()
	_, err1 := txn.PutBytes(ctx, "kernel", []byte("a kernel"))
	_, err2 := txn.PutBytes(ctx, "initrd", []byte("an initrd"))
	_, err3 := txn.PutImage(ctx, store.ImageSpec{Name: "disk0", Bytes: uint64(max(64, diskMiB)) << 20}, emptyDisk{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return host.Bundle{}, err
	}
	meta := store.Meta{Kind: "bundle", Created: time.Now().UTC(), Facts: map[string]string{"source": source}}
	made, err := txn.Commit(ctx, meta, store.Move{Bundle: name})
	if err != nil {
		return host.Bundle{}, err
	}
	all, err := b.Bundles(ctx)
	for _, known := range all {
		if known.Name == name {
			known.NewBytes = made.NewBytes
			return known, nil
		}
	}
	return host.Bundle{}, errors.Join(errors.New("the bundle isn't there"), err)
}

// emptyDisk is a disk of zeros.
type emptyDisk struct{}

func (emptyDisk) Slots() iter.Seq[uint64] { return func(func(uint64) bool) {} }
func (emptyDisk) ReadSlot(context.Context, uint64, []byte) error {
	return errors.New("it has no slots")
}
