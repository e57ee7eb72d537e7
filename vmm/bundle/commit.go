package bundle

import (
	"context"
	"fmt"
	"time"

	"flash/store"
)

// parts is everything a bundle's snapshot is made of.
type parts struct {
	kernel, initrd []byte
	disk           string // file
	diskMiB        int
	config         []byte // nil: none
	facts          map[string]string
}

// progressInterval is how often storing says how far it is.
const progressInterval = 500 * time.Millisecond

// commit stores the parts as a snapshot and names it.
func (c Config) commit(ctx context.Context, b *builder, name string, p parts) (Result, error) {
	disk, err := openSparse(ctx, p.disk)
	if err != nil {
		return Result{}, err
	}
	defer disk.Close()
	txn, err := c.Store.Begin(ctx, store.SnapshotID{})
	if err != nil {
		return Result{}, err
	}
	defer txn.Abort() // no-op after Commit

	for _, whole := range []struct {
		image string
		data  []byte
	}{{"kernel", p.kernel}, {"initrd", p.initrd}, {imageConfigName, p.config}} {
		if whole.data == nil {
			continue
		}
		if _, err := txn.PutBytes(ctx, whole.image, whole.data); err != nil {
			return Result{}, fmt.Errorf("store the %s: %w", whole.image, err)
		}
	}
	stopProgress := b.reportStoring(disk)
	_, err = txn.PutImage(ctx, store.ImageSpec{Name: "disk0", Bytes: disk.bytes}, disk)
	stopProgress()
	if err != nil {
		return Result{}, fmt.Errorf("store the root disk: %w", err)
	}
	meta := store.Meta{Kind: "bundle", Created: time.Now().UTC(), Facts: p.facts}
	done, err := txn.Commit(ctx, meta, store.Move{Bundle: name})
	if err != nil {
		return Result{}, err
	}
	return Result{Snapshot: done.Snapshot, NewBytes: done.NewBytes, DiskMiB: p.diskMiB, Facts: p.facts}, nil
}

// reportStoring tells how much of the disk was read, until the returned function is called.
func (b *builder) reportStoring(disk *sparseFile) (stop func()) {
	const step, unit = "store the root disk", "bytes"
	total := int64(disk.slots) * slotBytes
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			b.step(step, int64(disk.read.Load())*slotBytes, total, unit)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
