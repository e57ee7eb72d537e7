package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"flash/store/offsite"
)

// follower pushes behind the checkpoints of the VMs that follow a remote. It is never in anybody's way: a checkpoint only
// rings its bell.
type follower struct {
	stop  context.CancelFunc
	bell  chan struct{} // capacity 1
	ended chan struct{}

	mu   sync.Mutex // guards the rest
	lags map[string]offsite.Lag
}

// follow starts a remote's follower, if anything follows there.
func (h *Host) follow(k *knownRemote) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.follow != nil || k.removed || !k.spec.ReplicateAll && len(k.spec.ReplicateVMs) == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{stop: stop, bell: make(chan struct{}, 1), ended: make(chan struct{}), lags: map[string]offsite.Lag{}}
	k.follow = f
	go func() {
		defer close(f.ended)
		h.replicate(ctx, k, f)
	}()
}

// replicate opens the remote, whenever that can be done, and follows until ctx ends.
func (h *Host) replicate(ctx context.Context, k *knownRemote, f *follower) {
	name := k.now().Name
	for wait := openPause; ; wait = min(2*wait, openDeadline) {
		opened, err := k.open(ctx)
		if err == nil {
			err = opened.Offsite.Replicate(ctx, func() []string { return h.following(k) }, f.bell, func(l offsite.Lag) { f.report(l) })
		}
		if ctx.Err() != nil {
			return
		}
		h.log.Warn("replication waits", "remote", name, "cause", err, "wait", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// following lists the VMs that follow a remote and are this host's.
func (h *Host) following(k *knownRemote) []string {
	s := k.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	for id := range h.vms {
		if !isTracking(id) && (s.ReplicateAll || slices.Contains(s.ReplicateVMs, id)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// rang tells all followers that a history has changed.
func (h *Host) rang() {
	for _, k := range h.remotes.all() {
		k.mu.Lock()
		f := k.follow
		k.mu.Unlock()
		if f == nil {
			continue
		}
		select {
		case f.bell <- struct{}{}:
		default: // it has not looked yet since the last one
		}
	}
}

func (f *follower) report(l offsite.Lag) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lags[l.VM] = l
}

// unfollow ends a remote's follower.
func (k *knownRemote) unfollow() {
	k.mu.Lock()
	f := k.follow
	k.follow = nil
	k.mu.Unlock()
	if f != nil {
		f.stop()
		<-f.ended
	}
}

// lag says how far each VM that follows is behind.
func (k *knownRemote) lag() []VMLag {
	k.mu.Lock()
	f, name := k.follow, k.spec.Name
	k.mu.Unlock()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []VMLag
	for _, l := range f.lags {
		one := VMLag{VM: l.VM, Remote: name, Checkpoints: l.Checkpoints}
		if !l.Since.IsZero() {
			since := l.Since
			one.Since = &since
		}
		if l.Err != nil {
			one.Error = l.Err.Error()
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b VMLag) int {
		if a.VM < b.VM {
			return -1
		}
		return 1
	})
	return out
}

// lagsOf gives a VM's lags, of all remotes.
func (h *Host) lagsOf(id string) (out []VMLag) {
	for _, k := range h.remotes.all() {
		for _, l := range k.lag() {
			if l.VM == id {
				out = append(out, l)
			}
		}
	}
	return out
}

// changeReplication saves which VMs follow, and starts or ends the following.
func (h *Host) changeReplication(k *knownRemote, r ChangeRemoteRequest) error {
	if r.ReplicateAll == nil && len(r.ReplicateVMs) == 0 {
		return nil
	}
	h.remotes.mu.Lock()
	k.mu.Lock()
	before := k.spec
	if r.ReplicateAll != nil {
		k.spec.ReplicateAll = *r.ReplicateAll
	}
	k.spec.ReplicateVMs = slices.Clone(before.ReplicateVMs)
	for id, on := range r.ReplicateVMs {
		k.spec.ReplicateVMs = slices.DeleteFunc(k.spec.ReplicateVMs, func(other string) bool { return other == id })
		if on {
			k.spec.ReplicateVMs = append(k.spec.ReplicateVMs, id)
		}
	}
	slices.Sort(k.spec.ReplicateVMs)
	k.mu.Unlock()
	err := h.remotes.save()
	h.remotes.mu.Unlock()
	if err != nil {
		k.mu.Lock()
		k.spec = before
		k.mu.Unlock()
		return err
	}
	k.unfollow()
	h.follow(k)
	return nil
}
