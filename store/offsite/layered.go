package offsite

import (
	"context"
	"errors"

	"flash/cas"
	"flash/cas/remote"
)

// layered reads what is near from there, and the rest from the bucket: for walks, which read nodes.
type layered struct {
	near Packs
	far  *remote.Remote
}

func (o *Offsite) layered() layered { return layered{o.c.Packs, o.c.Remote} }

func (l layered) Get(ctx context.Context, r cas.Ref, dst []byte) ([]byte, error) {
	p, err := l.near.Get(ctx, r, dst)
	if errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) {
		return l.far.Get(ctx, r, dst)
	}
	return p, err
}

func (l layered) GetMany(ctx context.Context, refs []cas.Ref, each func(i int, data []byte, err error) error) error {
	var missing []cas.Ref
	var at []int
	err := l.near.GetMany(ctx, refs, func(i int, data []byte, err error) error {
		if errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt) {
			missing, at = append(missing, refs[i]), append(at, i)
			return nil
		}
		return each(i, data, err)
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return l.far.GetMany(ctx, missing, func(k int, data []byte, err error) error { return each(at[k], data, err) })
}

// farOnly reads from the bucket alone.
type farOnly struct{ *remote.Remote }

// Has says what the catalogue lists.
func (f farOnly) Has(_ context.Context, hs []cas.Hash) ([]bool, error) { return f.Remote.Has(hs), nil }
