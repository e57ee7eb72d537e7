package host

import (
	"context"
	"errors"
	"slices"

	"flash/store"
)

// CheckRequest says how much of the store is read. The structure is always checked whole.
type CheckRequest struct {
	Read   float64 `json:"read"`   // of the packs' bytes, 0 to 1
	Repair bool    `json:"repair"` // damaged packs are replaced by copies of what is good in them; reads all
}

// Check looks for damage in the store, and says which checkpoints it touches.
func (h *Host) Check(ctx context.Context, r CheckRequest) (store.CheckReport, error) {
	if !(r.Read >= 0 && r.Read <= 1) {
		return store.CheckReport{}, Errorf(CodeInvalid, "give a share from 0 to 1, as in 0.05", "read %v of the packs", r.Read)
	}
	away := h.askRemotes(ctx)
	report, err := h.store.Check(ctx, store.CheckOptions{Read: r.Read, Repair: r.Repair})
	switch {
	case errors.Is(err, store.ErrNothingChecked):
		return report, Errorf(CodeNothingChecked, "is it the right --home? flash bundle build busybox puts something in", "%w", err)
	case errors.Is(err, store.ErrUnsupported):
		return report, Errorf(CodeUnsupported, "check it on the host that keeps the packs", "%w", err)
	case err != nil:
		return report, h.explain(err, "")
	}
	if away != nil && slices.ContainsFunc(report.Findings, func(f store.Finding) bool { return f.Kind == "missing" }) {
		return report, away // what may well be there isn't called damaged
	}
	for _, f := range report.Findings {
		h.log.Error("check found damage", "severity", f.Severity, "kind", f.Kind, "pack", f.Pack, "offset", f.Offset, "hash", f.Hash, "reason", f.Reason, "touches", f.Touches)
	}
	return report, nil
}

// askRemotes brings what is known of the remotes' chunks up to date, for a check that asks what is there. The error tells of
// one that couldn't be asked.
func (h *Host) askRemotes(ctx context.Context) (away error) {
	for _, k := range h.remotes.all() {
		opened, err := k.open(ctx)
		if err == nil {
			err = opened.Packs.Refresh(ctx)
		}
		if err != nil {
			name := k.now().Name
			away = Errorf(CodeRemoteUnreachable, "check again when flash remote ls says that it is ready", "chunks that aren't here may be in the remote %s, which can't be asked: %w", name, h.explainRemote(err, name, ""))
		}
	}
	return away
}
