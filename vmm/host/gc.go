package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"flash/cas"
	"flash/store"
)

// GCRequest thins histories and frees what nothing reaches. The zero value only says what would be freed, by the rules
// that were saved.
type GCRequest struct {
	Apply        bool             `json:"apply"`
	VMs          []string         `json:"flashvms,omitempty"`      // whose histories; none: all
	Retention    *store.Retention `json:"retention,omitempty"`     // instead of the saved rules
	Save         bool             `json:"save,omitempty"`          // save Retention (absent: take the rules away) for VMs, or for all others
	Background   *bool            `json:"background,omitempty"`    // turn the daemon's own collections on or off
	EveryMinutes int              `json:"every_minutes,omitempty"` // how often at most it collects; 0: as it is
	BudgetBytes  *int64           `json:"budget_bytes,omitempty"`  // of the packs, from now on; 0: none
}

// GCReport says what was found and done, or would be, and by which rules.
type GCReport struct {
	store.GCReport
	Rules    map[string]store.Retention `json:"rules"` // saved, by VM; "" is for all others
	Settings store.Settings             `json:"settings"`
	Usage    store.Usage                `json:"usage"`
}

// GC thins histories and frees what nothing reaches, beside everything else.
func (h *Host) GC(ctx context.Context, r GCRequest) (GCReport, error) {
	if r.Retention != nil {
		if err := r.Retention.Check(); err != nil {
			return GCReport{}, Errorf(CodeInvalid, "give numbers of 0 or more", "gc: %w", err)
		}
	}
	if r.EveryMinutes < 0 {
		return GCReport{}, Errorf(CodeInvalid, "give minutes, as in 30", "gc every %d minutes", r.EveryMinutes)
	}
	if err := checkBudget(r.BudgetBytes); err != nil {
		return GCReport{}, err
	}
	for _, id := range r.VMs {
		if _, err := h.find(id); err != nil {
			return GCReport{}, err
		}
	}
	if err := h.saveRules(ctx, r); err != nil {
		return GCReport{}, h.explain(err, "")
	}
	var out GCReport
	var err error
	if out.GCReport, err = h.collect(ctx, store.GCOptions{Apply: r.Apply, VMs: r.VMs, Retention: r.Retention}); err != nil {
		return out, err
	}
	if out.Rules, err = h.store.Retentions(ctx); err == nil {
		out.Settings, err = h.store.Settings(ctx)
	}
	if err != nil {
		return out, h.explain(err, "")
	}
	out.Usage = h.store.Usage()
	return out, nil
}

// SetBudget bounds the packs from now on; 0: no bound.
func (h *Host) SetBudget(ctx context.Context, bytes int64) error {
	if err := checkBudget(&bytes); err != nil {
		return err
	}
	if err := h.saveRules(ctx, GCRequest{BudgetBytes: &bytes}); err != nil {
		return h.explain(err, "")
	}
	return nil
}

func checkBudget(bytes *int64) error {
	if bytes == nil || *bytes == 0 || *bytes >= store.MinBudgetBytes {
		return nil
	}
	return Errorf(CodeInvalid, fmt.Sprintf("give %d MiB or more, or none", store.MinBudgetBytes>>20), "%d bytes are no budget for a store", *bytes)
}

func (h *Host) saveRules(ctx context.Context, r GCRequest) error {
	if r.Background != nil || r.EveryMinutes > 0 || r.BudgetBytes != nil {
		set, err := h.store.Settings(ctx)
		if err != nil {
			return err
		}
		if r.Background != nil {
			set.GCOff = !*r.Background
		}
		if r.EveryMinutes > 0 {
			set.GCEveryMinutes = r.EveryMinutes
		}
		if r.BudgetBytes != nil {
			set.BudgetBytes = *r.BudgetBytes
		}
		if err := h.store.SetSettings(ctx, set); err != nil {
			return err
		}
	}
	if !r.Save {
		return nil
	}
	if len(r.VMs) == 0 {
		return h.store.SetRetention(ctx, "", r.Retention)
	}
	for _, id := range r.VMs {
		if err := h.store.SetRetention(ctx, id, r.Retention); err != nil {
			return err
		}
	}
	return nil
}

// collect is a collection, and what the host itself keeps of snapshots that are gone.
func (h *Host) collect(ctx context.Context, o store.GCOptions) (store.GCReport, error) {
	var report store.GCReport
	var err error
	gently(func() { report, err = h.store.GC(ctx, o) })
	switch {
	case errors.Is(err, cas.ErrCorrupt), errors.Is(err, cas.ErrNotFound):
		return report, &Error{Code: CodeCorrupt, Err: err, Message: fmt.Sprintf("nothing was freed, for what lives can't be told: %v", err),
			Remedy: "flash check names the checkpoints that are damaged; flash rm VM --checkpoint N removes one, then gc works again"}
	case errors.Is(err, store.ErrUnsupported):
		return report, Errorf(CodeUnsupported, "collect on the host that keeps the packs", "gc: %w", err)
	case err != nil:
		return report, h.explain(err, "")
	}
	if o.Apply {
		h.release(ctx)
		freed, err := h.removeBootFiles(ctx)
		report.Freed += freed
		if err != nil {
			return report, h.explain(fmt.Errorf("gc: %w", err), "")
		}
	}
	return report, nil
}

// removeBootFiles removes kernels and initrds of snapshots that are gone. They are written anew when they are needed.
func (h *Host) removeBootFiles(ctx context.Context) (freed int64, err error) {
	dir := filepath.Join(h.cfg.Home, "boot")
	files, err := os.ReadDir(dir) // first: what is written later belongs to a snapshot that is a root by then
	if err != nil {
		return 0, err
	}
	keep := map[string]bool{}
	for id, err := range h.store.Roots(ctx) {
		if err != nil {
			return 0, err
		}
		keep[id.String()[:32]] = true
	}
	for _, f := range files {
		name, _, ok := strings.Cut(f.Name(), "-")
		if !ok || len(name) != 32 || keep[name] {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return freed, err
		}
		freed += info.Size()
	}
	return freed, nil
}

// RemoveCheckpoint takes one checkpoint out of a history. Its space comes back with the next gc.
func (h *Host) RemoveCheckpoint(ctx context.Context, id string, number int) error {
	if _, err := h.find(id); err != nil {
		return err
	}
	err := h.store.RemoveCheckpoints(ctx, id, []int{number}, "asked for")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Errorf(CodeCheckpointNotFound, fmt.Sprintf("flash history %s lists the checkpoints there are", id), "%s has no checkpoint %d", id, number)
	case errors.Is(err, store.ErrInUse):
		return Errorf(CodeVMPinned, fmt.Sprintf("unpin it, rewind %s elsewhere, or remove the VM forked from it first", id), "checkpoint %d of %s must stay: %w", number, id, err)
	case err != nil:
		return h.explain(err, id)
	}
	return nil
}

// What the daemon does by itself. A collection reads every node of every tree once and copies what lives in packs with
// little life; at this pace it takes a tenth of a slow disk.
const (
	upkeepTick       = time.Minute
	upkeepEvery      = 30 * time.Minute
	upkeepGarbage    = 64 << 20 // less isn't worth the reading
	upkeepCopyBytes  = 1 << 30
	upkeepPaceBytes  = 16 << 20 // a second
	upkeepMaxWaiting = 5 * time.Second
)

// Upkeep collects in the background until ctx ends: when the saved rules would thin a history, when much was removed, and
// once after the start, when nobody knows. Its failures are for the log.
func (h *Host) Upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepTick)
	defer tick.Stop()
	last := h.now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-h.gcWanted:
		}
		ran, err := h.upkeep(ctx, last)
		if ran || err != nil {
			last = h.now()
		}
		if err != nil && ctx.Err() == nil {
			h.log.Error("background gc failed", "cause", err)
		}
	}
}

// upkeep collects if it is time to and worth it. last is when that happened before.
func (h *Host) upkeep(ctx context.Context, last time.Time) (ran bool, err error) {
	set, err := h.store.Settings(ctx)
	if err != nil || set.GCOff {
		return false, err
	}
	every := upkeepEvery
	if set.GCEveryMinutes > 0 {
		every = time.Duration(set.GCEveryMinutes) * time.Minute
	}
	// Near the end of the budget every byte counts, and there is no time to wait.
	pressing := h.store.Usage().Pressing()
	if h.now().Sub(last) < every && !pressing {
		return false, nil
	}
	garbage, known := h.store.Garbage()
	due, err := h.store.Due(ctx)
	if h.store.CatalogueDue() {
		if err := h.store.WriteCatalogue(ctx); err != nil {
			return false, err
		}
	}
	worth := garbage >= upkeepGarbage || pressing && garbage > 0
	if err != nil || known && !worth && due == 0 {
		return false, err
	}
	report, err := h.collect(ctx, store.GCOptions{Apply: true, Budget: cas.SweepBudget{CopyBytes: upkeepCopyBytes, Pace: pace}})
	if err != nil {
		return true, err
	}
	h.log.Info("background gc", "removed_checkpoints", len(report.Removed), "freed_bytes", report.Freed, "live_bytes", report.Sweep.LiveBytes,
		"dead_bytes", report.Sweep.DeadBytes, "postponed_packs", report.Sweep.Postponed, "took", report.Took.Round(time.Millisecond))
	return true, nil
}

// wantGC asks Upkeep to look now.
func (h *Host) wantGC() {
	select {
	case h.gcWanted <- struct{}{}:
	default:
	}
}

// collectIfPressed asks for a collection when the store's budget is nearly used up.
func (h *Host) collectIfPressed() {
	if h.store.Usage().Pressing() {
		h.wantGC()
	}
}

// pace waits as long as the bytes should have taken.
func pace(ctx context.Context, bytes int64) error {
	wait := time.NewTimer(min(upkeepMaxWaiting, time.Duration(bytes)*time.Second/upkeepPaceBytes))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
