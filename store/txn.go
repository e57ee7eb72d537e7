package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"flash/cas"
	"flash/store/manifest"
)

// Txn is a snapshot in the making. Not safe for concurrent use, except that PutImage of different images may run at once.
//
//	open ──Commit succeeds──▶ ended        A failed Commit leaves it open: Commit may be tried again.
//	open ──Abort────────────▶ ended        A failed Put leaves it open, but Commit then refuses.
type Txn struct {
	s      *Store
	parent *Snapshot // nil: from nothing
	unpin  func()

	mu       sync.Mutex // guards the rest
	ended    bool
	failed   error                      // of the first Put that failed
	images   map[string]*manifest.Image // nil while it is being put
	loose    map[*publication]struct{}  // what is stored and not yet below an image of images
	records  []SnapshotID               // records a Commit has stored, or tried to
	newBytes int64
	purse    Purse
}

// Begin starts a snapshot that descends from parent (zero: from nothing). Until it ends, everything it has put is a root of gc.
func (s *Store) Begin(ctx context.Context, parent SnapshotID) (*Txn, error) {
	t := &Txn{s: s, unpin: func() {}, images: map[string]*manifest.Image{}, loose: map[*publication]struct{}{}}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.open.Add(1)
	s.txns[t] = struct{}{}
	s.mu.Unlock()
	if parent.IsZero() {
		return t, nil
	}
	t.unpin = s.pin(parent) // before it is read, so that it can't go away in between
	var err error
	if t.parent, err = s.Snapshot(ctx, parent); err != nil {
		t.Abort()
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	return t, nil
}

// Keep carries images of the parent over unchanged. Images neither put nor kept are not in the new snapshot.
func (t *Txn) Keep(names ...string) error {
	for _, name := range names {
		im := t.parent.image(name)
		if im == nil {
			return fmt.Errorf("keep image %q: the parent has none: %w", name, ErrNotFound)
		}
		if err := t.reserve(name); err != nil {
			return fmt.Errorf("keep image %q: %w", name, err)
		}
		t.finish(name, &manifest.Image{Name: name, Bytes: im.bytes, Root: im.root.Ref()}, nil, 0, nil)
	}
	return nil
}

// reserve claims a name for one put.
func (t *Txn) reserve(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errEnded
	}
	if _, ok := t.images[name]; ok {
		return fmt.Errorf("it is in the snapshot: %w", ErrExists)
	}
	if name == "" || len(name) > manifest.MaxNameBytes || len(t.images) == manifest.MaxImages {
		return fmt.Errorf("a snapshot has at most %d images with names of 1 to %d bytes", manifest.MaxImages, manifest.MaxNameBytes)
	}
	t.images[name] = nil
	return nil
}

// finish ends the put of an image, well or not.
func (t *Txn) finish(name string, im *manifest.Image, pub *publication, newBytes int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newBytes += newBytes
	if err != nil {
		t.failed = errors.Join(t.failed, fmt.Errorf("image %q: %w", name, err))
		delete(t.images, name) // what was put stays loose, and so a root, until the end
		return
	}
	t.images[name] = im
	delete(t.loose, pub)
}

// Abort forgets. A no-op after Commit.
func (t *Txn) Abort() {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.ended = true
	garbage := t.newBytes
	t.mu.Unlock()
	t.s.garbage.add(garbage)
	t.s.mu.Lock()
	delete(t.s.txns, t)
	t.s.mu.Unlock()
	t.unpin()
	t.s.open.Done()
}

var errEnded = errors.New("the transaction has ended")

// record collects the images put so far.
func (t *Txn) record(m Meta) (*manifest.Snapshot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	if t.failed != nil {
		return nil, fmt.Errorf("a put has failed before: %w", t.failed)
	}
	kind, err := manifest.ParseKind(m.Kind)
	if err != nil {
		return nil, err
	}
	r := &manifest.Snapshot{Kind: kind, Created: m.Created.UTC().Round(0), Facts: m.Facts}
	if m.Created.IsZero() {
		r.Created = t.s.now().UTC().Round(0)
	}
	if t.parent != nil {
		r.Parent = t.parent.id
	}
	for name, im := range t.images {
		if im == nil {
			return nil, fmt.Errorf("image %q is still being put", name)
		}
		r.Images = append(r.Images, *im)
	}
	slices.SortFunc(r.Images, func(a, b manifest.Image) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// putRecord stores the snapshot record.
func (t *Txn) putRecord(ctx context.Context, r *manifest.Snapshot) (SnapshotID, error) {
	p, named, err := r.Append(nil)
	if err != nil {
		return SnapshotID{}, err
	}
	id := t.s.chunks.Hasher().Sum(p[:named])
	t.mu.Lock()
	t.records = append(t.records, id) // a root before it is found or stored
	t.mu.Unlock()
	stats, err := t.s.chunks.Put(ctx, []cas.Chunk{{Hash: id, Kind: cas.KindSnapshot, Named: named, Data: p}}, nil)
	t.mu.Lock()
	t.newBytes += stats.NewBytes
	t.mu.Unlock()
	if err != nil {
		return id, fmt.Errorf("snapshot record: %w", err)
	}
	return id, nil
}
