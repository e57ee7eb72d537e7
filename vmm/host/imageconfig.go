package host

import (
	"context"
	"fmt"

	"flash/vmm/bundle"
	"flash/vmm/guest"
)

// imageDefaults gives a command what the container image its VM was imported from says about running one: environment,
// folder and user, each where the command doesn't say its own.
func (h *Host) imageDefaults(ctx context.Context, v *vm, r guest.ExecRequest) (guest.ExecRequest, error) {
	v.mu.Lock()
	config := v.image
	v.mu.Unlock()
	if config == nil {
		snap, err := h.store.Snapshot(ctx, v.bundle)
		if err != nil {
			return r, h.explain(fmt.Errorf("bundle of %s: %w", v.id, err), v.id)
		}
		read, err := bundle.ReadImageConfig(ctx, snap)
		if err != nil {
			return r, h.explain(fmt.Errorf("bundle of %s: %w", v.id, err), v.id)
		}
		config = &read
		v.mu.Lock()
		v.image = config
		v.mu.Unlock()
	}
	r.Env = append(append([]string(nil), config.Env...), r.Env...) // the later of two wins
	if r.Cwd == "" {
		r.Cwd = config.WorkingDir
	}
	if r.User == "" {
		r.User = config.User
	}
	return r, nil
}
