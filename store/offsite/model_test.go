package offsite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/bucket"
	"flash/store"
	"flash/store/manifest"
)

var (
	modelSeed    = flag.Uint64("seed", 0, "seed of the model test; 0: another one each time")
	modelSteps   = flag.Int("steps", 0, "steps of the model test; 0: as many as there is time for")
	modelSeconds = flag.Float64("seconds", 3, "how long the model test goes on")
)

// line is a VM's history in plain Go: what each number names, and the head.
type line struct {
	points map[int]cas.Hash
	head   int
}

func (l *line) clone() *line {
	if l == nil {
		return nil
	}
	return &line{maps.Clone(l.points), l.head}
}

func (l *line) equal(o *line) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.head == o.head && maps.Equal(l.points, o.points)
}

func (l *line) String() string {
	if l == nil {
		return "none"
	}
	return fmt.Sprintf("head %d of %v", l.head, slices.Sorted(maps.Keys(l.points)))
}

func lineOf(h *manifest.History) *line {
	l := &line{points: map[int]cas.Hash{}, head: h.Head}
	for _, c := range h.Checkpoints {
		l.points[c.Number] = c.Snapshot
	}
	return l
}

// claimed is a ref as the model knows it.
type claimed struct {
	*line
	owner int
	by    *localVM // that the owner has pushed or claimed it with: its next push must succeed
}

type localVM struct{ *line }

// world is two hosts, a bucket, and what they should hold.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	m      *memory
	clock  *clock
	hosts  [2]*host
	local  [2]map[string]*localVM
	reader *host // restores copies of the bucket
	reg    registry
	refs   map[string]*claimed
	named  int
	seed   uint64

	mu     sync.Mutex // guards the rest
	copied *memory    // the bucket at some instant of the step
	copyAt int        // operations until it is copied; 0: not
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Any order of what two hosts do with one bucket, killed at any operation, beside collections of either, leaves what the
// model says; and a copy of the bucket at any instant restores every ref that it shows.
func TestAnyHistoryOfTwoHostsIsWhatTheModelSays(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	m, c := newMemory(), newClock()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 4)), m: m, clock: c, reg: registry{}, refs: map[string]*claimed{}, seed: seed}
	for i, name := range []string{"a", "b"} {
		w.hosts[i] = newHost(t, name, m, c)
		w.local[i] = map[string]*localVM{}
		w.connected(i)
	}
	w.reader = newHost(t, "r", m, c)
	steps := []struct {
		name   string
		weight int
		do     func(i int)
	}{
		{"create", 2, w.create}, {"checkpoint", 14, w.checkpoint}, {"fork", 3, w.fork}, {"rewind", 4, w.rewind}, {"remove a checkpoint", 4, w.thin},
		{"delete", 2, w.delete}, {"local gc", 2, w.localGC}, {"read", 6, w.read}, {"push", 14, w.push}, {"pull", 10, w.pull},
		{"take over", 3, w.takeOver}, {"remove the ref", 2, w.remove}, {"release", 3, w.release}, {"gc", 8, w.gc}, {"restart", 1, w.restart},
		{"wait", 2, func(int) { c.advance(leaseTime) }}, {"look", 3, w.look},
	}
	total, done := 0, 0
	for _, s := range steps {
		total += s.weight
	}
	defer func() {
		t.Logf("%d steps; again: go test ./store/offsite -run '^%s$' -seed %d -steps %d", done, t.Name(), seed, done+1)
	}()
	end := time.Now().Add(time.Duration(*modelSeconds * float64(time.Second)))
	for ; *modelSteps > 0 && done < *modelSteps || *modelSteps == 0 && time.Now().Before(end); done++ {
		pick, i := w.rng.IntN(total), w.rng.IntN(2)
		for _, s := range steps {
			if pick -= s.weight; pick < 0 {
				if testing.Verbose() {
					t.Logf("step %d: %s %s", done, w.hosts[i].name, s.name)
				}
				s.do(i)
				break
			}
		}
	}
	w.look(0)
	w.end()
}

// connected sets up what a host has reached the bucket by.
func (w *world) connected(i int) {
	h := w.hosts[i]
	h.Offsite.wait = func(ctx context.Context, d time.Duration) error {
		if d == leaseTime/5 {
			<-ctx.Done()
			return ctx.Err()
		}
		return sleep(ctx, d/1000)
	}
	h.onOp(func(string, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.copyAt > 0 {
			if w.copyAt--; w.copyAt == 0 {
				w.copied = w.m.copy()
			}
		}
	})
}

func (w *world) any(i int) (string, *localVM) {
	names := slices.Sorted(maps.Keys(w.local[i]))
	if len(names) == 0 {
		w.create(i)
		return w.any(i)
	}
	name := names[w.rng.IntN(len(names))]
	return name, w.local[i][name]
}

func (w *world) anyPoint(l *line) int {
	numbers := slices.Sorted(maps.Keys(l.points))
	if len(numbers) == 0 {
		return -1
	}
	return numbers[w.rng.IntN(len(numbers))]
}

func (w *world) anyRef() string {
	names := slices.Sorted(maps.Keys(w.refs))
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

func (w *world) create(i int) {
	if len(w.local[i]) > 5 {
		return
	}
	w.named++
	vm := fmt.Sprintf("vm-%d", w.named)
	w.hosts[i].create(vm)
	w.local[i][vm] = &localVM{&line{map[int]cas.Hash{}, -1}}
}

func (w *world) checkpoint(i int) {
	h := w.hosts[i]
	vm, v := w.any(i)
	ch := state{}
	for range 1 + w.rng.IntN(12) {
		ch[w.rng.Uint64N(imageSlots)] = w.rng.Uint64N(400) // pages are shared by chance; 0 is a zero page
	}
	before := state{}
	if v.head >= 0 {
		before = w.reg[v.points[v.head]]
	}
	n := h.checkpoint(vm, ch)
	c, err := h.s.Checkpoint(context.Background(), vm, n)
	w.must(err)
	w.reg[c.Snapshot] = overlaid(before, ch)
	v.points[n], v.head = c.Snapshot, n
}

func (w *world) fork(i int) {
	vm, v := w.any(i)
	n := w.anyPoint(v.line)
	if n < 0 || len(w.local[i]) > 5 {
		return
	}
	w.named++
	child := fmt.Sprintf("vm-%d", w.named)
	w.must(w.hosts[i].s.CreateVM(context.Background(), store.VM{ID: child}, &store.ForkPoint{VM: vm, Number: n}))
	w.local[i][child] = &localVM{&line{map[int]cas.Hash{0: v.points[n]}, 0}}
}

func (w *world) rewind(i int) {
	vm, v := w.any(i)
	if n := w.anyPoint(v.line); n >= 0 {
		w.must(w.hosts[i].s.MoveHead(context.Background(), vm, n, "rewind"))
		v.head = n
	}
}

func (w *world) thin(i int) {
	vm, v := w.any(i)
	n := w.anyPoint(v.line)
	if n < 0 {
		return
	}
	err := w.hosts[i].s.RemoveCheckpoints(context.Background(), vm, []int{n}, "model")
	if errors.Is(err, store.ErrInUse) {
		return
	}
	w.must(err)
	delete(v.points, n)
}

func (w *world) delete(i int) {
	vm, _ := w.any(i)
	w.must(w.hosts[i].s.DeleteVM(context.Background(), vm))
	delete(w.local[i], vm)
}

func (w *world) localGC(i int) {
	_, err := w.hosts[i].s.GC(context.Background(), store.GCOptions{Apply: true})
	w.must(err)
}

func (w *world) read(i int) {
	vm, v := w.any(i)
	if n := w.anyPoint(v.line); n >= 0 {
		w.hosts[i].mustHold(vm, n, w.reg[v.points[n]])
	}
}

func (w *world) restart(i int) {
	w.hosts[i].restart()
	w.connected(i)
}

// far does something with the bucket: killed by chance, cut off by chance, beside a collection by chance. dead: whether it
// took effect isn't known.
func (w *world) far(i int, f func(ctx context.Context, h *host) error) (err error, dead bool) {
	h := w.hosts[i]
	chance := w.rng.IntN(10)
	switch chance {
	case 0, 1, 2:
		h.view.mu.Lock()
		h.view.killAt, h.view.after = h.view.ops+1+w.rng.IntN(20), w.rng.IntN(2) == 0
		h.view.mu.Unlock()
	case 3:
		h.setAway(true)
	}
	w.mu.Lock()
	w.copied, w.copyAt = nil, w.rng.IntN(120)
	w.mu.Unlock()
	var beside sync.WaitGroup
	var besideErr error
	if w.rng.IntN(3) == 0 {
		beside.Go(func() { _, besideErr = w.hosts[1-i].GC(context.Background(), GCOptions{Apply: true}) })
	}
	err = f(context.Background(), h)
	beside.Wait()
	if besideErr != nil && !errors.Is(besideErr, ErrCollecting) {
		w.t.Fatalf("gc beside it: %v", besideErr)
	}
	h.setAway(false)
	h.view.mu.Lock()
	dead = h.view.dead
	h.view.killAt = 0
	h.view.mu.Unlock()
	if dead {
		if w.rng.IntN(3) == 0 {
			h.restart()
		} else {
			h.reconnect()
		}
		w.connected(i)
	}
	w.mu.Lock()
	copied := w.copied
	w.copied, w.copyAt = nil, 0
	w.mu.Unlock()
	if copied != nil {
		w.reg.mustRestore(w.reader, copied, "a copy of the bucket")
	}
	if errors.Is(err, bucket.ErrUnavailable) {
		if chance != 3 {
			w.t.Fatal(err)
		}
		return err, false
	}
	if !dead && errors.Is(err, errKilled) {
		w.t.Fatalf("it says it was killed: %v", err)
	}
	return err, dead
}

// refNow reads a ref as it is.
func (w *world) refNow(vm string) (*line, HostID) {
	w.reader.on(w.m)
	at, err := w.reader.readRef(context.Background(), vm)
	w.must(err)
	if at.isNone() {
		return nil, HostID{}
	}
	return lineOf(at.history), at.ref.Owner
}

func (w *world) localNow(i int, vm string) *line {
	h, err := w.hosts[i].s.ExportVM(context.Background(), vm)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	w.must(err)
	return lineOf(&h)
}

func (w *world) lineOfRef(vm string) *line {
	if r := w.refs[vm]; r != nil {
		return r.line
	}
	return nil
}

func (w *world) push(i int) {
	vm, v := w.any(i)
	ref := w.refs[vm]
	err, dead := w.far(i, func(ctx context.Context, h *host) error { _, err := h.Push(ctx, PushRequest{VM: vm}); return err })
	now := &claimed{v.clone(), i, v}
	switch {
	case dead:
		got, owner := w.refNow(vm)
		switch {
		case got.equal(now.line) && owner == w.hosts[i].id:
			w.refs[vm] = now
		case !got.equal(w.lineOfRef(vm)):
			w.t.Fatalf("a killed push of %s left %s, was %s, here %s", vm, got, w.lineOfRef(vm), now.line)
		}
	case err == nil:
		if ref != nil && ref.owner != i {
			w.t.Fatalf("%s was pushed by host %d and is owned by %d", vm, i, ref.owner)
		}
		w.refs[vm] = now
	case errors.Is(err, bucket.ErrUnavailable), errors.Is(err, ErrCollecting), errors.Is(err, ErrMoved):
	case ref != nil && ref.owner != i:
		if !errors.Is(err, ErrNotOwner) {
			w.t.Fatal(err)
		}
	case ref == nil || ref.by == v || !errors.Is(err, ErrRolledBack) && !errors.Is(err, ErrDiverged):
		w.t.Fatal(err)
	}
}

func (w *world) pull(i int) {
	vm := w.anyRef()
	if vm == "" {
		return
	}
	ref := w.refs[vm]
	r := PullRequest{VM: vm, Lazy: w.rng.IntN(2) == 0, TakeOver: w.rng.IntN(3) == 0}
	as := vm
	if !r.TakeOver && w.rng.IntN(2) == 0 {
		w.named++
		as = fmt.Sprintf("copy-%d", w.named)
		r.As = as
	}
	if w.local[i][as] == nil && len(w.local[i]) > 6 {
		return
	}
	old := w.local[i][as]
	err, dead := w.far(i, func(ctx context.Context, h *host) error { _, err := h.Pull(ctx, r); return err })
	now := &localVM{ref.clone()}
	switch {
	case dead:
		got := w.localNow(i, as)
		if got.equal(now.line) {
			w.local[i][as] = now
		} else if old == nil && got != nil || old != nil && !got.equal(old.line) {
			w.t.Fatalf("a killed pull of %s left %s, was %v, is to be %s", as, got, old, now.line)
		}
		if there, owner := w.refNow(vm); !there.equal(ref.line) {
			w.t.Fatalf("a killed pull of %s left the ref at %s, was %s", vm, there, ref.line)
		} else if owner == w.hosts[i].id && ref.owner != i {
			ref.owner, ref.by = i, w.local[i][as]
		}
	case err == nil:
		w.local[i][as] = now
		if r.TakeOver {
			ref.owner, ref.by = i, now
		}
	case errors.Is(err, bucket.ErrUnavailable), errors.Is(err, ErrMoved):
	case old == nil || !errors.Is(err, ErrDiverged):
		w.t.Fatal(err)
	}
}

func (w *world) takeOver(i int) {
	vm, v := w.any(i)
	ref := w.refs[vm]
	err, dead := w.far(i, func(ctx context.Context, h *host) error { _, err := h.TakeOver(ctx, vm); return err })
	switch {
	case dead:
		there, owner := w.refNow(vm)
		if !there.equal(w.lineOfRef(vm)) {
			w.t.Fatalf("a killed take-over of %s left %s", vm, there)
		}
		if there != nil && owner == w.hosts[i].id && ref.owner != i {
			ref.owner, ref.by = i, v
		}
	case err == nil:
		if ref == nil {
			w.t.Fatalf("%s was taken over, and isn't there", vm)
		}
		if ref.owner != i {
			ref.owner, ref.by = i, v
		}
	case errors.Is(err, bucket.ErrUnavailable), errors.Is(err, ErrMoved):
	case errors.Is(err, ErrNoRef) && ref == nil, errors.Is(err, ErrDiverged) && ref != nil && ref.by != v:
	default:
		w.t.Fatal(err)
	}
}

func (w *world) remove(i int) {
	vm := w.anyRef()
	if vm == "" {
		return
	}
	ref := w.refs[vm]
	err, dead := w.far(i, func(ctx context.Context, h *host) error { return h.Remove(ctx, vm) })
	switch {
	case dead:
		if there, _ := w.refNow(vm); there == nil {
			delete(w.refs, vm)
		}
	case err == nil:
		if ref.owner != i {
			w.t.Fatalf("%s was removed by host %d and is owned by %d", vm, i, ref.owner)
		}
		delete(w.refs, vm)
	case errors.Is(err, bucket.ErrUnavailable), ref.owner != i && errors.Is(err, ErrNotOwner):
	default:
		w.t.Fatal(err)
	}
}

func (w *world) release(i int) {
	err, dead := w.far(i, func(ctx context.Context, h *host) error { return h.Release(ctx) })
	if err != nil && !dead && !errors.Is(err, bucket.ErrUnavailable) && !errors.Is(err, ErrCollecting) && !errors.Is(err, ErrMoved) {
		w.t.Fatal(err)
	}
}

func (w *world) gc(i int) {
	err, dead := w.far(i, func(ctx context.Context, h *host) error { _, err := h.GC(ctx, GCOptions{Apply: true}); return err })
	if err != nil && !dead && !errors.Is(err, bucket.ErrUnavailable) && !errors.Is(err, ErrCollecting) {
		w.t.Fatal(err)
	}
}

// look compares everything.
func (w *world) look(int) {
	ctx := context.Background()
	shown := w.reg.mustRestore(w.reader, w.m, "the bucket")
	if len(shown) != len(w.refs) {
		w.t.Fatalf("the bucket shows %+v, the model has %v", shown, slices.Sorted(maps.Keys(w.refs)))
	}
	for _, r := range shown {
		ref := w.refs[r.VM]
		if there, owner := w.refNow(r.VM); ref == nil || !there.equal(ref.line) || owner != w.hosts[ref.owner].id {
			w.t.Fatalf("%s in the bucket is %s of %s, the model has %+v", r.VM, there, owner, ref)
		}
	}
	for i := range w.hosts {
		vms, err := w.hosts[i].s.VMs(ctx)
		w.must(err)
		if len(vms) != len(w.local[i]) {
			w.t.Fatalf("host %d has %d VMs, the model %d", i, len(vms), len(w.local[i]))
		}
		for vm, v := range w.local[i] {
			if got := w.localNow(i, vm); !got.equal(v.line) {
				w.t.Fatalf("host %d: %s is %s, the model has %s", i, vm, got, v.line)
			}
			for n, id := range v.points {
				w.hosts[i].mustHold(vm, n, w.reg[id])
			}
		}
	}
}

// end deletes everything, and nothing may be left.
func (w *world) end() {
	ctx := context.Background()
	for vm, ref := range w.refs {
		w.must(w.hosts[ref.owner].Remove(ctx, vm))
	}
	for i, h := range w.hosts {
		for vm := range w.local[i] {
			w.must(h.s.DeleteVM(ctx, vm))
		}
		w.must(h.Release(ctx))
	}
	h := w.hosts[0]
	for range 4 { // a gc that was killed, and leases of pushes that were, are taken for dead first
		_, err := h.GC(ctx, GCOptions{Apply: true})
		if !errors.Is(err, ErrCollecting) {
			w.must(err)
		}
		w.clock.advance(leaseTime)
	}
	h.gc()
	h.gc()
	left := slices.Concat(w.m.keys("vms/"), w.m.keys("packs/"), w.m.keys("catalog/"), w.m.keys("leases/"), w.m.keys("holds/"))
	if len(left) != 0 {
		w.t.Errorf("all is removed, and %v are left", left)
	}
}
