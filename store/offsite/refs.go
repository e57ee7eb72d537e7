package offsite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/cas/bucket"
	"flash/store/manifest"
)

// Ref is a VM as the bucket shows it.
type Ref struct {
	VM          string    `json:"flashvm"`
	Host        string    `json:"host"` // who may move it
	HostID      string    `json:"host_id"`
	Mine        bool      `json:"mine"`
	Epoch       uint64    `json:"epoch"` // grows with every change of owner
	Seq         uint64    `json:"seq"`   // grows with every push
	Since       time.Time `json:"since"` // when the owner became that, by its clock
	Pushed      time.Time `json:"pushed"`
	Head        int       `json:"head"`
	Checkpoints int       `json:"checkpoints"`
	Newest      int       `json:"newest"`
}

// inFlight is how many small objects are read at once.
const inFlight = 16

// Refs lists the VMs in the bucket, by name. Beside an error about refs that can't be read it lists all others.
func (o *Offsite) Refs(ctx context.Context) ([]Ref, error) {
	found, err := o.readRefs(ctx)
	if err != nil {
		return nil, o.wrap("list the flashvms", err)
	}
	refs := make([]Ref, 0, len(found))
	var failed error
	for _, f := range found {
		if f.err != nil {
			failed = errors.Join(failed, o.wrap("read "+f.key, f.err))
			continue
		}
		refs = append(refs, o.public(f.ref, f.history))
	}
	return refs, failed
}

// Ref gives one. ErrNoRef.
func (o *Offsite) Ref(ctx context.Context, vm string) (Ref, error) {
	at, err := o.readRef(ctx, vm)
	if err == nil && at.isNone() {
		err = ErrNoRef
	}
	if err != nil {
		return Ref{}, o.wrap("flashvm "+vm, err)
	}
	return o.public(at.ref, at.history), nil
}

func (o *Offsite) wrap(what string, err error) error {
	return fmt.Errorf("%s in %s: %w", what, o.c.Bucket.Location(), err)
}

func (o *Offsite) public(r *refRecord, h *manifest.History) Ref {
	ref := Ref{VM: r.VM, Host: r.HostName, HostID: r.Owner.String(), Mine: r.Owner == o.c.Host, Epoch: r.Epoch, Seq: r.Seq,
		Since: r.Since, Pushed: r.Pushed, Head: h.Head, Checkpoints: len(h.Checkpoints), Newest: manifest.NoCheckpoint}
	if n := len(h.Checkpoints); n > 0 {
		ref.Newest = h.Checkpoints[n-1].Number
	}
	return ref
}

// refAt is a ref in one state of its object. Without an object, version is "" and ref nil.
type refAt struct {
	key     string
	version bucket.Version
	ref     *refRecord
	history *manifest.History // nil of a tombstone
	err     error             // it can't be read
}

// isNone: nobody has such a VM there.
func (r *refAt) isNone() bool { return r.ref == nil || r.ref.Removed }

// readRef reads one. That there is none is no error.
func (o *Offsite) readRef(ctx context.Context, vm string) (refAt, error) {
	at, err := o.getRef(ctx, refKey(vm))
	if err == nil && at.ref != nil && at.ref.VM != vm { // a hash of long names that isn't one
		err = fmt.Errorf("it is the ref of flashvm %.140q: %w", at.ref.VM, ErrFormat)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", at.key, err)
	}
	return at, err
}

func (o *Offsite) getRef(ctx context.Context, key string) (refAt, error) {
	at := refAt{key: key}
	p, version, err := o.c.Bucket.Get(ctx, key, maxRefBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	at.version = version
	if at.ref, err = decodeRef(p); err != nil {
		return at, err
	}
	// A list of an encrypted bucket shows keys that say nothing; there the seal holds an object to its key.
	if key != refKey(at.ref.VM) && !strings.HasPrefix(key, refPrefix+"=") {
		return at, fmt.Errorf("it is the ref of flashvm %.140q: %w", at.ref.VM, ErrFormat)
	}
	if at.ref.Removed {
		return at, nil
	}
	if at.history, err = manifest.DecodeHistory(at.ref.History); err != nil {
		return at, err
	}
	if at.history.VM != at.ref.VM {
		err = fmt.Errorf("ref of flashvm %.140q: its history is of %.140q: %w", at.ref.VM, at.history.VM, ErrFormat)
	}
	return at, err
}

// readRefs reads all but tombstones, by name; a ref that can't be read has its error.
func (o *Offsite) readRefs(ctx context.Context) ([]refAt, error) {
	all, err := o.readAllRefs(ctx)
	return slices.DeleteFunc(all, func(r refAt) bool { return r.err == nil && r.isNone() }), err
}

// readAllRefs reads tombstones too.
func (o *Offsite) readAllRefs(ctx context.Context) ([]refAt, error) {
	keys, err := o.list(ctx, refPrefix)
	if err != nil {
		return nil, err
	}
	all := make([]refAt, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, info := range keys {
		g.Go(func() error {
			at, err := o.getRef(gctx, info.Key)
			if err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, bucket.ErrIntegrity) && !errors.Is(err, bucket.ErrTooLarge) {
				return fmt.Errorf("%s: %w", info.Key, err)
			}
			at.err = err
			all[i] = at
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r refAt) bool { return r.err == nil && r.ref == nil }) // removed since
	slices.SortFunc(all, func(a, b refAt) int { return strings.Compare(a.name(), b.name()) })
	return all, nil
}

func (r *refAt) name() string {
	if r.ref == nil {
		return ""
	}
	return r.ref.VM
}

// list gives what there is under a prefix.
func (o *Offsite) list(ctx context.Context, prefix string) ([]bucket.Info, error) {
	var all []bucket.Info
	for info, err := range o.c.Bucket.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// moveRef puts r in the place of what was there. errAgain when that has moved.
func (o *Offsite) moveRef(ctx context.Context, from refAt, r *refRecord) (refAt, error) {
	p, err := r.append(nil)
	if err != nil {
		return refAt{}, err
	}
	version, err := o.put(ctx, from.key, p, whenStill(from.version))
	if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("ref of flashvm %s: %w: %w", r.VM, errAgain, err)
	}
	return refAt{key: from.key, version: version, ref: r}, err
}

// whenStill is the condition that an object is in a state; "": that there is none.
func whenStill(v bucket.Version) bucket.Condition {
	if v == "" {
		return bucket.Condition{Absent: true}
	}
	return bucket.Condition{Match: v}
}

func (o *Offsite) put(ctx context.Context, key string, p []byte, c bucket.Condition) (bucket.Version, error) {
	return o.c.Bucket.Put(ctx, key, bytes.NewReader(p), int64(len(p)), c)
}
