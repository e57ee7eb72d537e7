package offsite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
	"flash/store/manifest"
)

// PullRequest says what is brought here. As names the VM here; "": as there.
type PullRequest struct {
	VM       string
	As       string
	TakeOver bool // this host becomes the owner: the other's pushes are refused from then on. Else As is a copy with no claim
	Lazy     bool // names only; pages and nodes are fetched when they are read. Held in the bucket until the VM is removed here
	Progress Progress
}

// PullReport says what a pull has moved.
type PullReport struct {
	VM       string        `json:"flashvm"`
	Packs    int           `json:"packs"`
	NewBytes int64         `json:"new_bytes"`
	Took     time.Duration `json:"took_ns"`
}

// Pull makes a VM of what the bucket has, or lets one that was pulled before go on with it. A VM is named here only when all
// of it is: here, or, lazily, there and held there. After any failure and any kill, pulling again fetches what is absent.
//
// The store is to be opened over the near tier with this remote as its far one: else a lazy pull can't be read, and a gc
// beside a whole one fails, having removed nothing.
//
// ErrNoRef; ErrDiverged when there is another VM of that name, or one that has gone another way.
func (o *Offsite) Pull(ctx context.Context, r PullRequest) (PullReport, error) {
	began := time.Now()
	if r.As == "" {
		r.As = r.VM
	}
	if r.TakeOver && r.As != r.VM {
		return PullReport{}, fmt.Errorf("pull flashvm %s as %s and take it over: what is taken over keeps its name", r.VM, r.As)
	}
	done, err := o.turns.take(ctx, r.As)
	if err != nil {
		return PullReport{}, err
	}
	defer done()
	defer o.pullingNow(r.As)()
	p := puller{o: o, r: r, report: PullReport{VM: r.As}}
	err = again(ctx, func() error { return p.pull(ctx) })
	p.report.Took = time.Since(began)
	if err != nil {
		return p.report, fmt.Errorf("pull flashvm %s from %s: %w", r.VM, o.c.Bucket.Location(), err)
	}
	return p.report, nil
}

// pullingNow keeps Release from the hold of a name.
func (o *Offsite) pullingNow(as string) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pulling[as]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.pulling[as]--; o.pulling[as] == 0 {
			delete(o.pulling, as)
		}
	}
}

type puller struct {
	o      *Offsite
	r      PullRequest
	report PullReport
}

func (p *puller) pull(ctx context.Context) error {
	o := p.o
	p.r.Progress.tell("look", 0, 0)
	at, err := o.readRef(ctx, p.r.VM)
	if err != nil {
		return err
	}
	if at.isNone() {
		return ErrNoRef
	}
	if err := p.mayBecome(ctx, at.history); err != nil {
		return err
	}
	roots := at.history.Roots()
	for _, id := range roots {
		defer o.c.Store.Hold(id)() // since before they are put, so that a gc here leaves them alone
	}
	hold, wasHeld, err := o.holdRef(ctx, at, p.r.As)
	if err != nil {
		return err
	}
	if err := o.c.Remote.Refresh(ctx); err != nil {
		return err
	}
	if !p.r.Lazy {
		if err := p.fetch(ctx, roots); err != nil {
			return err
		}
	}
	p.r.Progress.tell("name it", 0, 0)
	err = o.c.Store.ImportVM(ctx, *at.history, store.ImportOptions{As: p.r.As, Continue: true})
	if errors.Is(err, store.ErrRefMoved) {
		return fmt.Errorf("%w: %w", ErrDiverged, err)
	}
	if err != nil {
		return err
	}
	o.advise("pull", o.pullSets(ctx, at.history))
	if p.r.TakeOver {
		if err := p.claim(ctx, at); err != nil {
			return err
		}
	}
	if !p.r.Lazy && !wasHeld { // else another may need what was held: Release tells
		o.drop(ctx, hold)
	}
	return nil
}

// claim claims what was just imported. Where something was entered here in the ledger since the last pull, and something else
// there, the two can't be one chain: the one here stays, as the import left it, and the ref takes it over with the VM, so that
// later pushes follow from it.
func (p *puller) claim(ctx context.Context, at refAt) error {
	here, err := p.o.c.Store.ExportVM(ctx, p.r.As)
	if err != nil {
		return err
	}
	h := at.history
	if lacks(&here, h) != "" {
		inRef := map[cas.Hash]bool{}
		for _, id := range h.Roots() {
			inRef[id] = true
		}
		for _, id := range here.Roots() {
			if !inRef[id] { // a checkpoint was taken here since
				return fmt.Errorf("flashvm %s: %w", p.r.As, errAgain)
			}
		}
		p.o.c.Log.Warn("the ledgers here and in the bucket have gone different ways: the one here is kept", "flashvm", p.r.VM)
		h = &here
	}
	_, err = p.o.claim(ctx, at, h)
	return err
}

// mayBecome refuses what is another VM, or has gone another way, before anything is moved.
func (p *puller) mayBecome(ctx context.Context, h *manifest.History) error {
	here, err := p.o.c.Store.ExportVM(ctx, p.r.As)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !here.Created.Equal(h.Created) {
		return fmt.Errorf("there is another flashvm %s here, created at %s: pull it under another name: %w", p.r.As, here.Created.Format(timeForm), ErrDiverged)
	}
	for _, c := range here.Checkpoints {
		i, ok := slices.BinarySearchFunc(h.Checkpoints, c.Number, func(c manifest.NamedSnapshot, n int) int { return c.Number - n })
		if !ok || h.Checkpoints[i].Snapshot != c.Snapshot {
			return fmt.Errorf("checkpoint %d of %s here isn't in the bucket: push it, or pull under another name: %w", c.Number, p.r.As, ErrDiverged)
		}
	}
	return nil
}

// holdRef holds what a ref names for a VM of this host, and gives the hold's key. errAgain when the ref has moved
// meanwhile: as long as it hasn't, it has kept everything until the hold did.
func (o *Offsite) holdRef(ctx context.Context, at refAt, as string) (key string, wasHeld bool, err error) {
	o.holdMu.RLock()
	defer o.holdMu.RUnlock()
	o.mu.Lock()
	o.holdsPut++
	o.mu.Unlock()
	key = holdKey(o.c.Host, as)
	h := hold{object: object{kindHold, objectFormat}, Host: o.c.Host, HostName: o.c.HostName, VM: as, Since: o.now(),
		Snapshots: at.history.Roots(), Packs: []packID{}}
	had, version, err := o.readHold(ctx, key)
	if err != nil {
		return key, wasHeld, err
	}
	if had != nil { // it holds for a VM that was pulled before, and isn't let go by being pulled again
		wasHeld = true
		h.Snapshots, h.Packs = union(had.Snapshots, h.Snapshots), had.Packs
	}
	if _, err := o.put(ctx, key, encodeObject(h), whenStill(version)); err != nil {
		if errors.Is(err, bucket.ErrCondition) || errors.Is(err, bucket.ErrNotFound) {
			err = fmt.Errorf("%w: %w", errAgain, err)
		}
		return key, wasHeld, fmt.Errorf("hold it: %w", err)
	}
	info, err := o.c.Bucket.Stat(ctx, at.key)
	if err == nil && info.Version != at.version || errors.Is(err, bucket.ErrNotFound) {
		err = fmt.Errorf("the ref: %w", errAgain)
	}
	return key, wasHeld, err
}

// readHold reads one; nil: there is none.
func (o *Offsite) readHold(ctx context.Context, key string) (*hold, bucket.Version, error) {
	p, version, err := o.c.Bucket.Get(ctx, key, maxObjectBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	h, err := decodeHold(p)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", key, err)
	}
	return h, version, nil
}

func union(a, b []cas.Hash) []cas.Hash {
	seen := map[cas.Hash]bool{}
	all := []cas.Hash{}
	for _, h := range slices.Concat(a, b) {
		if !seen[h] {
			seen[h] = true
			all = append(all, h)
		}
	}
	return all
}
