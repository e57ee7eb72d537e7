package host

import (
	"context"
	"errors"

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
	report, err := h.store.Check(ctx, store.CheckOptions{Read: r.Read, Repair: r.Repair})
	switch {
	case errors.Is(err, store.ErrNothingChecked):
		return report, Errorf(CodeNothingChecked, "is it the right --home? flash bundle build busybox puts something in", "%w", err)
	case errors.Is(err, store.ErrUnsupported):
		return report, Errorf(CodeUnsupported, "check it on the host that keeps the packs", "%w", err)
	case err != nil:
		return report, h.explain(err, "")
	}
	for _, f := range report.Findings {
		h.log.Error("check found damage", "severity", f.Severity, "kind", f.Kind, "pack", f.Pack, "offset", f.Offset, "hash", f.Hash, "reason", f.Reason, "touches", f.Touches)
	}
	return report, nil
}
