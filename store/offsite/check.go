package offsite

import (
	"context"
	"errors"
	"fmt"

	"flash/cas"
	"flash/cas/bucket"
	"flash/cas/remote"
	"flash/store"
	"flash/store/manifest"
)

// CheckReport is what a check of the remote found.
type CheckReport struct {
	Refs     int             `json:"refs"`
	Packs    int             `json:"packs"`
	Nodes    int             `json:"nodes"`
	Chunks   int64           `json:"chunks"`
	Read     cas.VerifyStats `json:"read"`
	Findings []store.Finding `json:"findings"`
	Worst    string          `json:"worst"`
}

// Check looks for damage in the bucket: every ref and hold can be read, everything they reach is in the catalogue, every pack
// is there, and a fraction of their bytes is right. The structure is always checked whole. The error is about the check
// itself; store.ErrNothingChecked when there was nothing to read, which is no success.
func (o *Offsite) Check(ctx context.Context, readFraction float64, p Progress) (CheckReport, error) {
	c := checker{o: o, p: p, r: CheckReport{Findings: []store.Finding{}}, names: map[store.SnapshotID][]store.Name{}}
	err := c.run(ctx, readFraction)
	for _, f := range c.r.Findings {
		if f.Severity == store.Damage || c.r.Worst == "" {
			c.r.Worst = f.Severity
		}
	}
	if err != nil {
		return c.r, o.wrap("check", err)
	}
	return c.r, nil
}

type checker struct {
	o     *Offsite
	p     Progress
	r     CheckReport
	names map[store.SnapshotID][]store.Name
}

func (c *checker) run(ctx context.Context, readFraction float64) error {
	c.p.tell("read the catalogue", 0, 0)
	err := c.o.c.Remote.Refresh(ctx)
	switch {
	case errors.Is(err, remote.ErrCatalogue):
		c.found("catalogue", err.Error())
	case err != nil:
		return err
	}
	if err := c.refs(ctx); err != nil {
		return err
	}
	if err := c.holds(ctx); err != nil {
		return err
	}
	c.r.Packs = len(c.o.c.Remote.Packs())
	var damages []cas.Damage
	if readFraction > 0 && c.r.Packs > 0 {
		c.p.tell("read packs", 0, 0)
		c.r.Read, err = c.o.c.Remote.Verify(ctx, readFraction, func(d cas.Damage) { damages = append(damages, d) })
		if err != nil && !errors.Is(err, remote.ErrCatalogue) { // which is found already
			return err
		}
	}
	in, err := store.Inspect(ctx, farOnly{c.o.c.Remote}, c.names, damages, c.p.tell)
	if err != nil {
		return err
	}
	c.r.Nodes, c.r.Chunks = in.Nodes, in.Chunks
	c.r.Findings = append(c.r.Findings, in.Findings...)
	switch {
	case len(c.r.Findings) > 0:
	case c.r.Refs == 0 && c.r.Packs == 0:
		return fmt.Errorf("there is no flashvm and no pack: %w", store.ErrNothingChecked)
	case readFraction > 0 && c.r.Read.Records == 0:
		return fmt.Errorf("no pack was read: %w", store.ErrNothingChecked)
	}
	return nil
}

func (c *checker) found(kind, reason string, touches ...store.Name) {
	if touches == nil {
		touches = []store.Name{}
	}
	c.r.Findings = append(c.r.Findings, store.Finding{Severity: store.Damage, Kind: kind, Reason: reason, Touches: touches})
}

// refs reads the refs, and notes which names their snapshots have.
func (c *checker) refs(ctx context.Context) error {
	c.p.tell("read the refs", 0, 0)
	refs, err := c.o.readRefs(ctx)
	if err != nil {
		return err
	}
	for _, r := range refs {
		if r.err != nil {
			var touches []store.Name
			if r.ref != nil {
				touches = append(touches, store.Name{VM: r.ref.VM, Number: -1})
			}
			c.found("ref", fmt.Sprintf("%s: %v", r.key, r.err), touches...)
			continue
		}
		c.r.Refs++
		c.name(r.history)
	}
	return nil
}

func (c *checker) name(h *manifest.History) {
	if !h.Bundle.IsZero() {
		c.names[h.Bundle] = append(c.names[h.Bundle], store.Name{VM: h.VM, Number: -1})
	}
	for _, p := range h.Checkpoints {
		c.names[p.Snapshot] = append(c.names[p.Snapshot], store.Name{VM: h.VM, Number: p.Number})
	}
}

// holds reads what hosts need of the bucket.
func (c *checker) holds(ctx context.Context) error {
	infos, err := c.o.list(ctx, holdPrefix)
	if err != nil {
		return err
	}
	there := map[cas.PackID]bool{}
	for _, p := range c.o.c.Remote.Packs() {
		there[p.ID] = true
	}
	for _, info := range infos {
		h, _, err := c.o.readHold(ctx, info.Key)
		switch {
		case errors.Is(err, ErrFormat) || errors.Is(err, bucket.ErrIntegrity) || errors.Is(err, bucket.ErrTooLarge):
			c.found("hold", err.Error())
			continue
		case err != nil:
			return err
		case h == nil:
			continue
		}
		touched := store.Name{VM: h.VM + " on host " + h.HostName, Number: -1}
		for _, id := range h.Snapshots {
			if len(c.names[id]) == 0 {
				c.names[id] = append(c.names[id], touched)
			}
		}
		for _, id := range h.Packs {
			if !there[cas.PackID(id)] {
				c.found("missing", fmt.Sprintf("pack %s, which host %s needs, is in no catalogue", id, h.HostName), touched)
			}
		}
	}
	return nil
}
