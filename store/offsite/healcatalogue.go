package offsite

import (
	"context"
	"errors"

	"flash/cas/remote"
)

// healCatalogue makes the catalogue again where it was damaged. On success it has been read.
func (o *Offsite) healCatalogue(ctx context.Context, p Progress) error {
	err := o.c.Remote.Refresh(ctx)
	if !errors.Is(err, remote.ErrCatalogue) {
		return err
	}
	p.tell("make the catalogue again", 0, 0)
	c, err := o.beginCollection(ctx) // nobody else removes catalogues or packs meanwhile
	if err != nil {
		return err
	}
	defer c.end()
	st, err := o.c.Remote.Recatalogue(c.ctx)
	for _, d := range st.Damages {
		o.c.Log.Error("a pack that no catalogue names is damaged, and stays unnamed", "pack", d.Pack, "err", d.Err)
	}
	return c.blame(err)
}
