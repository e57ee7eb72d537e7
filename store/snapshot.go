package store

import (
	"context"
	"fmt"
	"maps"
	"time"

	"flash/store/manifest"
)

// ImageSpec names an image and gives its exact length. Slots = ceil(Bytes / 4096); the last slot is padded with zeros.
type ImageSpec struct {
	Name  string // "mem", "disk0", "state", "kernel", "initrd"
	Bytes uint64
}

// Meta is what a snapshot says about itself. It is encoded with sorted keys.
type Meta struct {
	Kind    string            // "bundle" or "checkpoint"; anything else is refused
	Created time.Time         // UTC
	Facts   map[string]string // engine, machine type, CPU model, agent protocol, bundle, … ; see vmm.Facts
}

// Snapshot is an open snapshot.
type Snapshot struct {
	s      *Store
	id     SnapshotID
	record *manifest.Snapshot
}

// Snapshot opens one by id. ErrNotFound, ErrCorrupt.
func (s *Store) Snapshot(ctx context.Context, id SnapshotID) (*Snapshot, error) {
	record, err := readRecord(ctx, s.chunks, id)
	if err != nil {
		return nil, err
	}
	return &Snapshot{s, id, record}, nil
}

// ID is the hash of the snapshot's record.
func (sn *Snapshot) ID() SnapshotID { return sn.id }

// Parent is the snapshot this one descends from; zero: none. It need not exist any more.
func (sn *Snapshot) Parent() SnapshotID { return sn.record.Parent }

// Meta is what the snapshot says about itself.
func (sn *Snapshot) Meta() Meta {
	return Meta{Kind: sn.record.Kind.String(), Created: sn.record.Created, Facts: maps.Clone(sn.record.Facts)}
}

// Images lists the images by name.
func (sn *Snapshot) Images() []ImageSpec {
	specs := make([]ImageSpec, len(sn.record.Images))
	for i, im := range sn.record.Images {
		specs[i] = ImageSpec{im.Name, im.Bytes}
	}
	return specs
}

// Image opens an image. ErrNotFound when the snapshot has none of that name.
func (sn *Snapshot) Image(ctx context.Context, name string) (*Image, error) {
	im := sn.image(name)
	if im == nil {
		return nil, fmt.Errorf("snapshot %s: image %q: %w", sn.id, name, ErrNotFound)
	}
	return im, nil
}

// image is nil when there is none of that name, or no snapshot.
func (sn *Snapshot) image(name string) *Image {
	if sn == nil {
		return nil
	}
	for _, im := range sn.record.Images {
		if im.Name == name {
			return sn.s.image(im)
		}
	}
	return nil
}

// Pin makes the snapshot a root of gc until release is called, whatever happens to the names it has.
// For a running machine whose pages still come from it.
func (sn *Snapshot) Pin() (release func()) { return sn.s.pin(sn.id) }
