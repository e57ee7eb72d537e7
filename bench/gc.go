package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"flash/cas"
	"flash/store"
	"flash/vmm/host"
)

// GCConfig is what the workload of collections runs on: a store of its own, which is empty but for a bundle.
type GCConfig struct {
	Config
	Store   *store.Store
	Home    string // folder whose files are measured in the end
	FillMiB int    // plain bytes that are made garbage at once; 0: 512
	DirtMiB int    // that a guest writes before each checkpoint; 0: 6
}

const (
	fillerMiB  = 8  // of one filler; some of them share each pack
	gcRounds   = 3  // of each speed
	besideMiB  = 96 // at most
	dirtFormat = "head -c %d /dev/urandom > /tmp/dirt"
)

// GC measures collections: how fast, how much they give back, and what a checkpoint beside one costs its guest. In the
// end everything in the store is deleted.
func GC(ctx context.Context, c GCConfig) (Report, error) {
	if c.FillMiB == 0 {
		c.FillMiB = 512
	}
	if c.DirtMiB == 0 {
		c.DirtMiB = 6
	}
	r := Report{Machine: machineFacts(ctx, "qemu-system-x86_64")}
	for _, measure := range []func(context.Context) ([]Figure, error){c.speed, c.beside, c.returned} {
		figures, err := measure(ctx)
		r.Figures = append(r.Figures, figures...)
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// speed measures sweeps of packs that are dead, and of packs half of which lives and is copied.
func (c GCConfig) speed(ctx context.Context) ([]Figure, error) {
	var dead, half []float64
	for round := range gcRounds {
		c.say("collecting %d MiB, round %d", c.FillMiB, round+1)
		names, err := c.fill(ctx, c.FillMiB)
		if err != nil {
			return nil, err
		}
		var odd, even []string
		for i, name := range names {
			if i%2 == 0 {
				even = append(even, name)
			} else {
				odd = append(odd, name)
			}
		}
		r, err := c.drop(ctx, odd)
		if err != nil {
			return nil, err
		}
		half = append(half, rate(r.Sweep.FreedBytes, r.Took))
		if r, err = c.drop(ctx, even); err != nil {
			return nil, err
		}
		dead = append(dead, rate(r.Sweep.FreedBytes, r.Took))
	}
	return []Figure{
		figure("gc of packs that are half dead", "MB/s of packs", "", half),
		figure("gc of packs that are dead", "MB/s of packs", "", dead),
	}, nil
}

func rate(bytes int64, took time.Duration) float64 { return float64(bytes) / 1e6 / took.Seconds() }

// fill puts bundles of typical pages that nobody boots from.
func (c GCConfig) fill(ctx context.Context, mib int) (names []string, err error) {
	for i := range max(2, mib/fillerMiB) {
		name := fmt.Sprintf("bench-filler-%d", i)
		data := makeTypical(fillerMiB)
		txn, err := c.Store.Begin(ctx, store.SnapshotID{})
		if err != nil {
			return nil, err
		}
		if _, err = txn.PutImage(ctx, store.ImageSpec{Name: "disk0", Bytes: uint64(len(data))}, data); err == nil {
			_, err = txn.Commit(ctx, store.Meta{Kind: "bundle", Created: time.Now().UTC()}, store.Move{Bundle: name})
		}
		txn.Abort() // no-op after Commit
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// drop takes bundles away and collects.
func (c GCConfig) drop(ctx context.Context, names []string) (host.GCReport, error) {
	for _, name := range names {
		if err := c.Store.DeleteBundle(ctx, name); err != nil {
			return host.GCReport{}, err
		}
	}
	return c.Host.GC(ctx, host.GCRequest{Apply: true})
}

// beside measures the pauses of checkpoints, by turns with nothing else going on and with a collection.
func (c GCConfig) beside(ctx context.Context) (_ []Figure, err error) {
	g, err := c.run(ctx, "bench-gc")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.end()) }()
	var quiet, busy, quietAll, busyAll []float64
	outlasted := 0
	for i := -1; i < g.Runs; i++ { // the first is for warming up
		c.say("checkpoints without and with a collection, %d of %d", max(i+1, 0), g.Runs)
		timing, err := c.dirtyAndCheckpoint(ctx, g, nil)
		if err != nil {
			return nil, err
		}
		names, err := c.fill(ctx, min(c.FillMiB, besideMiB))
		if err != nil {
			return nil, err
		}
		for k := 0; k < len(names); k += 2 { // so that half of each pack is copied
			if err := c.Store.DeleteBundle(ctx, names[k]); err != nil {
				return nil, err
			}
		}
		collected := make(chan error, 1)
		with, err := c.dirtyAndCheckpoint(ctx, g, func() {
			go func() {
				_, err := c.Host.GC(ctx, host.GCRequest{Apply: true})
				collected <- err
			}()
		})
		if err != nil {
			return nil, err
		}
		select {
		case err = <-collected:
		default:
			outlasted++
			err = <-collected
		}
		if err != nil {
			return nil, err
		}
		for k := 1; k < len(names); k += 2 {
			if err := c.Store.DeleteBundle(ctx, names[k]); err != nil {
				return nil, err
			}
		}
		if i < 0 {
			outlasted = 0
			continue
		}
		quiet, busy = append(quiet, pauseMillis(timing)), append(busy, pauseMillis(with))
		quietAll, busyAll = append(quietAll, pauseMillis(timing)+storeMillis(timing)), append(busyAll, pauseMillis(with)+storeMillis(with))
	}
	alone, both := figure("checkpoint pause, nothing else", "ms", "", quiet), figure("checkpoint pause beside gc", "ms", "p99 < 2×", busy)
	both.Note = fmt.Sprintf("p99 is %.2f× of that without gc; in %d of %d the collection outlasted the checkpoint", both.P99/alone.P99, outlasted, len(busy))
	return []Figure{alone, both,
		figure("checkpoint, stored, nothing else", "ms", "", quietAll),
		figure("checkpoint, stored, beside gc", "ms", "", busyAll)}, nil
}

func pauseMillis(t host.Timing) float64 { return float64(t.PauseMicros) / 1000 }
func storeMillis(t host.Timing) float64 { return float64(t.StoreMicros) / 1000 }

// dirtyAndCheckpoint lets the guest write and takes a checkpoint; before is called in between.
func (c GCConfig) dirtyAndCheckpoint(ctx context.Context, g *guests, before func()) (host.Timing, error) {
	if _, err := g.exec(ctx, g.id, false, "sh", "-c", fmt.Sprintf(dirtFormat, c.DirtMiB<<20)); err != nil {
		return host.Timing{}, err
	}
	if before != nil {
		before()
	}
	cp, err := g.Host.Checkpoint(ctx, host.CheckpointRequest{ID: g.id, Label: "bench"})
	if err != nil {
		return host.Timing{}, err
	}
	return *cp.Timing, nil
}

// returned deletes everything and measures what is left.
func (c GCConfig) returned(ctx context.Context) ([]Figure, error) {
	c.say("deleting everything")
	if _, err := c.fill(ctx, c.FillMiB); err != nil {
		return nil, err
	}
	before := c.Store.Usage().PackBytes
	vms, err := c.Host.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, vm := range vms {
		if err := c.Host.Remove(ctx, host.RemoveRequest{ID: vm.ID, Force: true}); err != nil {
			return nil, err
		}
	}
	bundles, err := c.Store.Bundles(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range bundles {
		names = append(names, b.Name)
	}
	if _, err := c.drop(ctx, names); err != nil {
		return nil, err
	}
	after := c.Store.Usage().PackBytes
	left, err := allocatedBelow(c.Home)
	if err != nil {
		return nil, err
	}
	back := figure("gc after all was deleted: bytes of packs returned", "%", "≥ 98", []float64{100 * (1 - float64(after)/float64(before))})
	back.Note = fmt.Sprintf("of %d MiB", before>>20)
	return []Figure{back, figure("left on disk of packs, index and database", "MiB", "", []float64{float64(left) / (1 << 20)})}, nil
}

// allocatedBelow is what the store's files take of the disk.
func allocatedBelow(home string) (total int64, err error) {
	for _, folder := range []string{"packs", "index", "meta"} {
		err := filepath.WalkDir(filepath.Join(home, folder), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.Type().IsRegular() {
				total += allocated(path)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

func makeTypical(mib int) pages { return makePages(mib, cas.SlotBytes/2) }
