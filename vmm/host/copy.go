package host

import (
	"context"
	"fmt"
	"io"
)

// CopyIn unpacks a tar stream below a folder of the guest.
func (h *Host) CopyIn(ctx context.Context, id, dir string, tar io.Reader) error {
	g, err := h.guestOf(id, "cp")
	if err != nil {
		return err
	}
	if err := g.client.CopyIn(ctx, dir, tar); err != nil {
		return h.explainCopy(g, dir, fmt.Errorf("copy into %s:%s: %w", id, dir, err))
	}
	return nil
}

// CopyOut packs a file or folder of the guest as a tar stream.
func (h *Host) CopyOut(ctx context.Context, id, path string, tar io.Writer) error {
	g, err := h.guestOf(id, "cp")
	if err != nil {
		return err
	}
	if err := g.client.CopyOut(ctx, path, tar); err != nil {
		return h.explainCopy(g, path, fmt.Errorf("copy from %s:%s: %w", id, path, err))
	}
	return nil
}

// explainCopy tells what the guest refused from what became of the guest.
func (h *Host) explainCopy(g *guestVM, path string, err error) error {
	if refusal, ok := refusalOf(err); ok && !g.closing.Load() && !g.ended() {
		return refusedCopy(g.id, path, refusal)
	}
	return h.explainGuest(g, err)
}
