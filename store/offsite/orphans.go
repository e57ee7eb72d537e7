package offsite

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/pack"
)

// orphans gives the pack objects that no catalogue names: uploads that never ended, and ones in flight. Under encryption a
// key says nothing, so what an object is is read from itself.
func (o *Offsite) orphans(ctx context.Context) ([]condemnedPack, error) {
	infos, err := o.list(ctx, "packs/")
	if err != nil {
		return nil, err
	}
	named := map[cas.Hash]bool{}
	keys := map[string]bool{}
	for _, p := range o.c.Remote.Packs() {
		named[p.ContentHash] = true
		keys[packKey(p.ContentHash)] = true
	}
	if len(infos) <= len(named) {
		return nil, nil
	}
	var found []condemnedPack
	for _, info := range infos {
		if keys[info.Key] {
			continue
		}
		k, err := o.identify(ctx, info)
		if errors.Is(err, bucket.ErrNotFound) {
			continue // removed since
		}
		if errors.Is(err, pack.ErrDamaged) || errors.Is(err, pack.ErrUnsupported) || errors.Is(err, bucket.ErrIntegrity) {
			o.c.Log.Warn("an object among the packs is none, and stays", "key", info.Key, "err", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.Key, err)
		}
		if !named[k.Content] {
			found = append(found, k)
		}
	}
	return found, nil
}

// identify says which pack an object is.
func (o *Offsite) identify(ctx context.Context, info bucket.Info) (condemnedPack, error) {
	sealed, err := pack.OpenSealed(rangeReader{ctx, o.c.Bucket, info.Key}, info.Bytes)
	if err != nil {
		return condemnedPack{}, err
	}
	return condemnedPack{Pack: packID(sealed.ID), Content: sealed.ContentHash, Bytes: info.Bytes}, nil
}

// rangeReader reads an object by ranges.
type rangeReader struct {
	ctx context.Context
	b   bucket.Bucket
	key string
}

func (r rangeReader) ReadAt(p []byte, offset int64) (int, error) {
	if err := r.b.GetRange(r.ctx, r.key, p, offset); err != nil {
		return 0, err
	}
	return len(p), nil
}
