package store

import (
	"context"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"flash/cas"
	"flash/store/manifest"
)

// ImageStats counts what putting one image did.
type ImageStats struct {
	// Slots given; of them zero, equal to the parent's slot, already stored (or same-filled, which needs no chunk), stored now.
	Slots, Zero, Same, Known, New uint64
	cas.PutStats                  // of data and tree nodes together
}

func (s *ImageStats) add(o *ImageStats) {
	s.Slots += o.Slots
	s.Zero += o.Zero
	s.Same += o.Same
	s.Known += o.Known
	s.New += o.New
	s.PutStats = s.PutStats.Add(o.PutStats)
}

// PutImage stores parent's image of that name with the changed slots replaced. Without such an image in the parent, or
// with one of another length, every slot that is not given is zero.
func (t *Txn) PutImage(ctx context.Context, spec ImageSpec, ch Changes) (ImageStats, error) {
	old := t.parent.image(spec.Name)
	return t.put(ctx, spec, ch, old, old != nil && old.bytes == spec.Bytes)
}

// PutBytes stores p as the image name. Used for device state, kernels, and other whole files; equal slots of the
// parent's image of that name are shared.
func (t *Txn) PutBytes(ctx context.Context, name string, p []byte) (ImageStats, error) {
	return t.put(ctx, ImageSpec{name, uint64(len(p))}, wholeFile(p), t.parent.image(name), false)
}

// put is PutImage; carry says whether slots not given are old's or zero.
func (t *Txn) put(ctx context.Context, spec ImageSpec, ch Changes, old *Image, carry bool) (ImageStats, error) {
	if spec.Bytes > manifest.MaxImageBytes {
		return ImageStats{}, fmt.Errorf("put image %q: %d bytes, at most %d", spec.Name, spec.Bytes, uint64(manifest.MaxImageBytes))
	}
	if err := t.checkBudget(); err != nil {
		return ImageStats{}, fmt.Errorf("put image %q: %w", spec.Name, err)
	}
	if err := t.reserve(spec.Name); err != nil {
		return ImageStats{}, fmt.Errorf("put image %q: %w", spec.Name, err)
	}
	pub := &publication{}
	t.mu.Lock()
	t.loose[pub] = struct{}{}
	t.mu.Unlock()
	w := newImageWriter(t.s, spec, old, carry, pub)
	w.mayPut = t.checkBudget
	err := w.run(ctx, ch)
	t.finish(spec.Name, &manifest.Image{Name: spec.Name, Bytes: spec.Bytes, Root: w.root.Ref()}, pub, w.stats.NewBytes, err)
	if err != nil {
		return w.stats, fmt.Errorf("put image %q: %w", spec.Name, err)
	}
	return w.stats, nil
}

// imageWriter turns changes into chunks and nodes, in a pipeline of bounded memory:
//
//	cut into batches ──▶ workers: read, compare, hash, put pages, put leaves ──▶ in order: put inner nodes
type imageWriter struct {
	s     *Store
	spec  ImageSpec
	slots uint64
	old   *Image // nil: none to compare with
	carry bool
	pub   *publication

	mayPut func() error // asked before each batch is stored

	level int          // of the root
	inner []*innerNode // by level; inner[0] is unused
	root  manifest.Entry
	stats ImageStats
}

func newImageWriter(s *Store, spec ImageSpec, old *Image, carry bool, pub *publication) *imageWriter {
	w := &imageWriter{s: s, spec: spec, old: old, carry: carry, pub: pub, slots: manifest.SlotCount(spec.Bytes)}
	w.level = manifest.RootLevel(w.slots)
	w.inner = make([]*innerNode, w.level+1)
	if carry {
		w.root = old.root
	}
	return w
}

const (
	batchSlots = 256 // 1 MiB of buffer a worker; whole leaves, so at least 129 slots but for the last batch
)

// batch is some changed slots on their way: all the changed ones of some leaves.
type batch struct {
	slots  []uint64
	done   chan struct{} // closed when the rest is filled
	leaves []leafChange
	stats  ImageStats
}

type leafChange struct {
	position uint64 // counted in leaves
	entry    manifest.Entry
}

func (w *imageWriter) run(ctx context.Context, ch Changes) error {
	g, ctx := errgroup.WithContext(ctx)
	jobs := make(chan *batch)
	inOrder := make(chan *batch, 2*w.s.workers)
	g.Go(func() error {
		defer close(jobs)
		defer close(inOrder)
		return w.cut(ctx, ch.Slots(), func(b *batch) error {
			for _, to := range []chan *batch{inOrder, jobs} {
				select {
				case to <- b:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	for range w.s.workers {
		g.Go(func() error {
			for b := range jobs {
				if err := w.work(ctx, ch, b); err != nil {
					return err
				}
				close(b.done)
			}
			return nil
		})
	}
	g.Go(func() error {
		for b := range inOrder {
			select {
			case <-b.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			w.stats.add(&b.stats)
			for _, leaf := range b.leaves {
				if err := w.replace(ctx, 1, leaf.position, leaf.entry); err != nil {
					return err
				}
			}
		}
		return w.closeAll(ctx)
	})
	return g.Wait()
}

// cut groups slots into batches of whole leaves, after checking their order.
func (w *imageWriter) cut(ctx context.Context, slots iter.Seq[uint64], emit func(*batch) error) error {
	b := &batch{done: make(chan struct{})}
	for slot := range slots {
		if slot >= w.slots {
			return fmt.Errorf("slot %d of %d", slot, w.slots)
		}
		if last := len(b.slots) - 1; last >= 0 {
			if slot <= b.slots[last] {
				return fmt.Errorf("slot %d after slot %d: changes must ascend", slot, b.slots[last])
			}
			if last >= batchSlots-manifest.LeafEntries && leafOf(slot) != leafOf(b.slots[last]) {
				if err := emit(b); err != nil {
					return err
				}
				b = &batch{done: make(chan struct{})}
			}
		}
		b.slots = append(b.slots, slot)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(b.slots) == 0 {
		return nil
	}
	return emit(b)
}

func leafOf(slot uint64) uint64 { return slot / manifest.LeafEntries }

// wholeFile is a file as changes: all its slots.
type wholeFile []byte

func (p wholeFile) Slots() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for slot := range manifest.SlotCount(uint64(len(p))) {
			if !yield(slot) {
				return
			}
		}
	}
}

func (p wholeFile) ReadSlot(_ context.Context, slot uint64, dst []byte) error {
	clear(dst[copy(dst, p[slot*cas.SlotBytes:]):])
	return nil
}
