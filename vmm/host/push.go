package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"flash/store/offsite"
)

// Push brings a VM's history into a remote, beside everything the VM does.
func (h *Host) Push(ctx context.Context, r RemotePushRequest, progress func(Progress)) (offsite.PushReport, error) {
	if _, err := h.find(r.VM); err != nil {
		return offsite.PushReport{}, err
	}
	if isTracking(r.VM) {
		return offsite.PushReport{}, Errorf(CodeInvalid, "push a VM of this host", "%s is a remote's own", r.VM)
	}
	k, opened, err := h.use(ctx, r.Remote)
	if err != nil {
		return offsite.PushReport{}, err
	}
	report, err := opened.Offsite.Push(ctx, offsite.PushRequest{VM: r.VM, Checkpoint: r.Checkpoint, Progress: inBytes(progress)})
	if err != nil {
		return report, h.explainRemote(err, k.now().Name, r.VM)
	}
	return report, nil
}

func inBytes(progress func(Progress)) offsite.Progress {
	if progress == nil {
		return nil
	}
	return func(step string, done, total int64) {
		progress(Progress{Step: step, Done: done, Total: total, Unit: "bytes"})
	}
}

// Pull brings a VM here, stopped: whole, or lazily by its names only.
func (h *Host) Pull(ctx context.Context, r RemotePullRequest, progress func(Progress)) (PullResult, error) {
	if r.As == "" {
		r.As = r.VM
	}
	if err := checkID(r.As); err != nil {
		return PullResult{}, err
	}
	report, err := h.pull(ctx, r, progress)
	if err != nil {
		return PullResult{}, err
	}
	out := PullResult{PullReport: report}
	if r.Lazy {
		out.Notice = "its pages are fetched when they are read; flash pull without --lazy brings the rest"
	}
	return out, nil
}

func (h *Host) pull(ctx context.Context, r RemotePullRequest, progress func(Progress)) (offsite.PullReport, error) {
	k, opened, err := h.use(ctx, r.Remote)
	if err != nil {
		return offsite.PullReport{}, err
	}
	report, err := opened.Offsite.Pull(ctx, offsite.PullRequest{VM: r.VM, As: r.As, Lazy: r.Lazy, TakeOver: r.TakeOver, Progress: inBytes(progress)})
	if err != nil {
		return report, h.explainRemote(err, k.now().Name, r.VM)
	}
	return report, h.learn(ctx, r.As)
}

// learn makes a VM that a pull has put into the store one of this host's.
func (h *Host) learn(ctx context.Context, id string) error {
	record, err := h.store.VM(ctx, id)
	if err != nil {
		return h.explain(err, id)
	}
	h.mu.Lock()
	known := h.vms[id]
	h.mu.Unlock()
	if known != nil {
		return nil
	}
	record.State = nil // where it ran is no concern of ours
	v, err := openVM(record)
	if err != nil {
		return err
	}
	v.state = status{State: StateStopped, Reason: "pulled"}
	h.mu.Lock()
	closed := h.closed
	if !closed && h.vms[id] == nil {
		h.vms[id] = v
	}
	h.mu.Unlock()
	v.unlock()
	if closed {
		return shuttingDown()
	}
	h.record(v)
	return nil
}

// A VM called REMOTE:VM is a remote's own history, seen from here: forks begin there, and nothing runs under that name.

func trackingID(remote, vm string) string { return remote + ":" + vm }

func isTracking(id string) bool { return strings.Contains(id, ":") }

// track brings what a remote says of a VM up to date here, so that it can be forked.
func (h *Host) track(ctx context.Context, id string) error {
	name, vm, _ := strings.Cut(id, ":")
	began := time.Now()
	_, err := h.pull(ctx, RemotePullRequest{Remote: name, VM: vm, As: id, Lazy: true}, nil)
	if err != nil {
		return err
	}
	h.log.Debug("tracked", "vm", id, "took", time.Since(began))
	return nil
}

// TakeOver makes this host the owner of a VM it has.
func (h *Host) TakeOver(ctx context.Context, name, vm string) (offsite.Ref, error) {
	k, opened, err := h.use(ctx, name)
	if err != nil {
		return offsite.Ref{}, err
	}
	if _, err := h.find(vm); isCode(err, CodeVMNotFound) {
		_, err = h.pull(ctx, RemotePullRequest{Remote: name, VM: vm, As: vm, Lazy: true, TakeOver: true}, nil)
		if err != nil {
			return offsite.Ref{}, err
		}
		ref, err := opened.Offsite.Ref(ctx, vm)
		return ref, h.explainRemote(err, k.now().Name, vm)
	} else if err != nil {
		return offsite.Ref{}, err
	}
	ref, err := opened.Offsite.TakeOver(ctx, vm)
	return ref, h.explainRemote(err, k.now().Name, vm)
}

// CollectRemote frees what no history in a remote reaches, in two steps with a grace between.
func (h *Host) CollectRemote(ctx context.Context, name string, apply bool) (offsite.GCReport, error) {
	k, opened, err := h.use(ctx, name)
	if err != nil {
		return offsite.GCReport{}, err
	}
	report, err := opened.Offsite.GC(ctx, offsite.GCOptions{Apply: apply})
	return report, h.explainRemote(err, k.now().Name, "")
}

// CheckRemote looks for damage in a remote.
func (h *Host) CheckRemote(ctx context.Context, r RemoteCheckRequest, progress func(Progress)) (RemoteCheckReport, error) {
	if !(r.Read >= 0 && r.Read <= 1) {
		return RemoteCheckReport{}, Errorf(CodeInvalid, "give a share from 0 to 1, as in 0.05", "read %v of the packs", r.Read)
	}
	k, opened, err := h.use(ctx, r.Remote)
	if err != nil {
		return RemoteCheckReport{}, err
	}
	var out RemoteCheckReport
	if r.Heal {
		healed, err := opened.Offsite.Heal(ctx, inBytes(progress))
		if err != nil {
			return out, h.explainRemote(fmt.Errorf("heal: %w", err), k.now().Name, "")
		}
		out.Healed = &healed
	}
	if out.CheckReport, err = opened.Offsite.Check(ctx, r.Read, inBytes(progress)); err != nil {
		return out, h.explainRemote(err, k.now().Name, "")
	}
	for _, f := range out.Findings {
		h.log.Error("check found damage", "remote", k.now().Name, "severity", f.Severity, "kind", f.Kind, "pack", f.Pack, "offset", f.Offset, "hash", f.Hash, "reason", f.Reason, "touches", f.Touches)
	}
	return out, nil
}
