package offsite

import (
	"context"
	"errors"

	"flash/cas/bucket"
	"flash/cas/pack"
	"flash/cas/remote"
)

// healCatalogue names the packs again that only damaged catalogues name, or none, and removes those. On success the
// catalogue has been read.
func (o *Offsite) healCatalogue(ctx context.Context, p Progress) error {
	err := o.c.Remote.Refresh(ctx)
	if !errors.Is(err, remote.ErrCatalogue) {
		return err
	}
	p.tell("heal the catalogue", 0, 0)
	c, err := o.beginCollection(ctx) // nobody else removes catalogues or packs meanwhile
	if err != nil {
		return err
	}
	defer c.end()
	orphans, err := o.orphans(c.ctx)
	if err != nil {
		return c.blame(err)
	}
	for _, k := range orphans {
		r := rangeReader{c.ctx, o.c.Bucket, packKey(k.Content)}
		// Every byte is read and checked before it is named.
		_, err := o.c.Remote.Upload(c.ctx, []remote.PackSource{{ID: [16]byte(k.Pack), ContentHash: k.Content, Bytes: k.Bytes, Reader: r}}, nil)
		if errors.Is(err, pack.ErrDamaged) {
			o.c.Log.Error("a pack that no catalogue names is damaged, and stays unnamed", "pack", pack.FileName(k.Content), "err", err)
			continue
		}
		if err != nil {
			return c.blame(err)
		}
	}
	damaged, err := o.damagedCatalogues(c.ctx) // now: one that names the same packs has been put right under its name
	if err != nil {
		return c.blame(err)
	}
	for _, key := range damaged {
		if err := o.c.Bucket.Delete(c.ctx, key); err != nil {
			return c.blame(err)
		}
	}
	return c.blame(o.c.Remote.Refresh(c.ctx))
}

// damagedCatalogues gives the keys of those that can't be used.
func (o *Offsite) damagedCatalogues(ctx context.Context) (keys []string, err error) {
	infos, err := o.list(ctx, "catalog/")
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		p, _, err := o.c.Bucket.Get(ctx, info.Key, info.Bytes+1)
		if err == nil {
			_, _, _, err = remote.DecodeCatalogue(p)
		}
		switch {
		case errors.Is(err, bucket.ErrNotFound):
		case errors.Is(err, remote.ErrCatalogue) || errors.Is(err, bucket.ErrIntegrity) || errors.Is(err, bucket.ErrTooLarge):
			keys = append(keys, info.Key)
		case err != nil:
			return nil, err
		}
	}
	return keys, nil
}
