package host

import (
	"context"
	"fmt"
	"strings"
)

// mayForget refuses to forget a remote that chunks of VMs here may still be in, and nowhere else. One that can't be asked
// might be such a one.
func (h *Host) mayForget(ctx context.Context, k *knownRemote) error {
	s := k.now()
	opened, err := k.open(ctx)
	if err != nil {
		return h.explainRemote(fmt.Errorf("ask what VMs here still need of it: %w", err), s.Name, "")
	}
	if err := opened.Offsite.Release(ctx); err != nil {
		return h.explainRemote(err, s.Name, "")
	}
	holds, err := opened.Offsite.Holds(ctx)
	if err != nil {
		return h.explainRemote(err, s.Name, "")
	}
	for _, hold := range holds {
		if hold.Mine {
			return Errorf(CodeRemoteInUse, fmt.Sprintf("flash pull %s:VM fetches the rest of a VM; flash rm VM and flash gc --apply let it go", s.Name), "VMs here were pulled lazily from %s, or forked from there, and not all of them is here", s.Name)
		}
	}
	return nil
}

// release tells the remotes what VMs here no longer need of them. It is for after a collection; what can't be told now is
// told after the next.
func (h *Host) release(ctx context.Context) {
	for _, k := range h.remotes.all() {
		k.mu.Lock()
		opened, name := k.opened, k.spec.Name
		k.mu.Unlock()
		if opened == nil {
			continue
		}
		if err := opened.Offsite.Release(ctx); err != nil {
			h.log.Warn("what isn't needed any more stays held", "remote", name, "cause", err)
		}
	}
}

// dropTracking removes the VMs that stand for a remote's own and that nothing was forked from, or that are asked for no more.
func (h *Host) dropTracking(ctx context.Context, remote string) error {
	vms, err := h.store.VMs(ctx)
	if err != nil {
		return h.explain(err, "")
	}
	for _, v := range vms {
		if !strings.HasPrefix(v.ID, trackingID(remote, "")) {
			continue
		}
		if err := h.Remove(ctx, RemoveRequest{ID: v.ID, Force: true}); err != nil && !isCode(err, CodeVMNotFound) {
			return err
		}
	}
	return nil
}
