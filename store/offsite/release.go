package offsite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
)

// neededID is the key's last element of the hold that Release puts: no VM's, whose escapes are of two hex digits.
const neededID = "~needed"

// Release tells the bucket which lazily pulled snapshots this host still needs; what it held besides is let go. For after
// VMs were removed here, and after a gc; it reads every node that a VM here reaches, when the host holds anything.
//
// What is still needed is held as the packs that have it, which is exact whatever became of the snapshots that were held:
// forks of them, and checkpoints upon them.
func (o *Offsite) Release(ctx context.Context) error {
	done, err := o.turns.take(ctx, "\x00release")
	if err != nil {
		return err
	}
	defer done()
	if err := again(ctx, func() error { return o.release(ctx) }); err != nil {
		return o.wrap("release what isn't needed any more", err)
	}
	return nil
}

func (o *Offsite) release(ctx context.Context) error {
	o.mu.Lock()
	putBefore := o.holdsPut
	o.mu.Unlock()
	keys, held, version, err := o.heldHere(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	needed, err := o.needed(ctx)
	if err != nil {
		return err
	}
	key := holdKeyOf(o.c.Host, neededID)
	if len(needed) > 0 {
		// First with all that was held, until it is sure that the packs are there and stay.
		if version, err = o.putNeeded(ctx, key, version, held, needed); err != nil {
			return err
		}
		if err := o.settle(ctx, "", needed); err != nil {
			return err
		}
		if err := o.mustBeThere(needed); err != nil {
			return err
		}
		if _, err := o.putNeeded(ctx, key, version, nil, needed); err != nil {
			return err
		}
	}
	o.holdMu.Lock()
	defer o.holdMu.Unlock()
	o.mu.Lock()
	putSince := o.holdsPut - putBefore
	o.mu.Unlock()
	if putSince > 0 { // one of these keys may hold something else now
		return fmt.Errorf("%d pulls have begun: %w", putSince, errAgain)
	}
	for _, k := range keys {
		if k == key && len(needed) > 0 {
			continue
		}
		if err := o.c.Bucket.Delete(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// heldHere gives this host's holds, but those of pulls that run, with all snapshots they name, and the version of the one
// that Release puts.
func (o *Offsite) heldHere(ctx context.Context) (keys []string, held []cas.Hash, version bucket.Version, err error) {
	infos, err := o.list(ctx, holdPrefix+o.c.Host.String()+"/")
	if err != nil {
		return nil, nil, "", err
	}
	for _, info := range infos {
		h, v, err := o.readHold(ctx, info.Key)
		if err != nil {
			return nil, nil, "", err
		}
		if h == nil || h.VM != "" && o.isPulling(h.VM) {
			continue
		}
		if h.VM == "" {
			version = v
		}
		keys = append(keys, info.Key)
		held = union(held, h.Snapshots)
	}
	return keys, held, version, nil
}

func (o *Offsite) isPulling(as string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pulling[as] > 0
}

// needed gives packs in the bucket that have all that is reached here and isn't near.
func (o *Offsite) needed(ctx context.Context) ([]cas.PackID, error) {
	var roots []cas.Hash
	for id, err := range o.c.Store.Roots(ctx) {
		if err != nil {
			return nil, err
		}
		defer o.c.Store.Hold(id)()
		roots = append(roots, id)
	}
	// What has gone between its being named and its being held is named no more.
	still := map[cas.Hash]bool{}
	for id, err := range o.c.Store.Roots(ctx) {
		if err != nil {
			return nil, err
		}
		still[id] = true
	}
	roots = slices.DeleteFunc(roots, func(id cas.Hash) bool { return !still[id] })
	absent, err := o.absent(ctx, roots)
	if err != nil {
		return nil, err
	}
	packs := map[cas.PackID]bool{}
	for _, h := range absent {
		ids := o.c.Remote.PacksOf(h)
		if len(ids) == 0 {
			o.c.Log.Error("a chunk is neither here nor in the bucket", "chunk", h)
			continue
		}
		if !slices.ContainsFunc(ids, func(id cas.PackID) bool { return packs[id] }) {
			packs[ids[0]] = true
		}
	}
	return slices.Collect(maps.Keys(packs)), nil
}

func (o *Offsite) putNeeded(ctx context.Context, key string, from bucket.Version, snapshots []cas.Hash, packs []cas.PackID) (bucket.Version, error) {
	h := hold{object: object{kindHold, objectFormat}, Host: o.c.Host, HostName: o.c.HostName, Since: o.now(), Snapshots: snapshots, Packs: sortedIDs(packs)}
	if h.Snapshots == nil {
		h.Snapshots = []cas.Hash{}
	}
	version, err := o.put(ctx, key, encodeObject(h), whenStill(from))
	if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	return version, err
}

// Hold is what a host needs of the bucket, for people.
type Hold struct {
	Host      string `json:"host"`
	HostID    string `json:"host_id"`
	Mine      bool   `json:"mine"`
	VM        string `json:"flashvm"` // "": what Release has found to be needed
	Snapshots int    `json:"snapshots"`
	Packs     int    `json:"packs"`
}

// Holds lists what all hosts hold.
func (o *Offsite) Holds(ctx context.Context) ([]Hold, error) {
	infos, err := o.list(ctx, holdPrefix)
	if err != nil {
		return nil, o.wrap("list the holds", err)
	}
	holds := []Hold{}
	for _, info := range infos {
		h, _, err := o.readHold(ctx, info.Key)
		if err != nil {
			return nil, o.wrap("list the holds", err)
		}
		if h != nil {
			holds = append(holds, Hold{h.HostName, h.Host.String(), h.Host == o.c.Host, h.VM, len(h.Snapshots), len(h.Packs)})
		}
	}
	return holds, nil
}

// ForgetHost lets go what another host held: one that is gone for good. Its lazily pulled VMs, should it live, lose what they
// haven't fetched.
func (o *Offsite) ForgetHost(ctx context.Context, host HostID) error {
	infos, err := o.list(ctx, holdPrefix+host.String()+"/")
	for _, info := range infos {
		if err == nil {
			err = o.c.Bucket.Delete(ctx, info.Key)
		}
	}
	if err == nil && len(infos) == 0 {
		err = fmt.Errorf("it holds nothing: %w", store.ErrNotFound)
	}
	if err != nil {
		return o.wrap("forget host "+host.String(), err)
	}
	return nil
}
