package host

import (
	"context"
	"errors"

	"flash/store"
)

// History gives a VM's checkpoints in ascending order.
func (h *Host) History(ctx context.Context, id string) ([]Checkpoint, error) {
	if _, err := h.find(id); err != nil {
		return nil, err
	}
	record, err := h.store.VM(ctx, id)
	if err != nil {
		return nil, h.explain(err, id)
	}
	entries, err := h.store.History(ctx, id)
	if err != nil {
		return nil, h.explain(err, id)
	}
	out := make([]Checkpoint, len(entries))
	for i, e := range entries {
		out[i] = shown(e, record.Head)
	}
	return out, nil
}

// Pin keeps a checkpoint for good, or lets it go.
func (h *Host) Pin(ctx context.Context, id string, number int, pinned bool) (Checkpoint, error) {
	if _, err := h.find(id); err != nil {
		return Checkpoint{}, err
	}
	err := h.store.SetPinned(ctx, id, number, pinned)
	if errors.Is(err, store.ErrNotFound) {
		return Checkpoint{}, noCheckpoint(id, number)
	}
	if err != nil {
		return Checkpoint{}, h.explain(err, id)
	}
	entry, err := h.store.Checkpoint(ctx, id, number)
	if err != nil {
		return Checkpoint{}, h.explain(err, id)
	}
	record, err := h.store.VM(ctx, id)
	if err != nil {
		return Checkpoint{}, h.explain(err, id)
	}
	return shown(entry, record.Head), nil
}

// Ledger gives a VM's record, its chain verified.
func (h *Host) Ledger(ctx context.Context, id string) ([]store.LedgerEntry, error) {
	if _, err := h.find(id); err != nil {
		return nil, err
	}
	out, err := h.store.Ledger(ctx, id)
	if err != nil {
		return nil, h.explain(err, id)
	}
	return out, nil
}

// shown is a checkpoint as doors show it.
func shown(e store.Checkpoint, head int) Checkpoint {
	out := Checkpoint{Number: e.Number, Label: e.Label, Created: e.Created, ExitCode: e.ExitCode, Pinned: e.Pinned, Head: e.Number == head, NewBytes: e.NewBytes, From: e.From}
	if e.Parent >= 0 {
		out.Parent = &e.Parent
	}
	return out
}
