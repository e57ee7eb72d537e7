package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"flash/cas/castest"
	"flash/cas/local"
)

// packModel is the model over real packs on a disk whose power can be cut.
type packModel struct {
	*model
	fs    *castest.CrashFS
	packs *local.Store
	holds []func()
}

// Any order of checkpoints, forks, rewinds, pins, removals, collections and power cuts leaves what the model says.
func TestAnyHistoryWithCollectionsIsWhatTheModelSays(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	m := &packModel{model: &model{t: t, rng: rand.New(rand.NewPCG(seed, 3)), dir: t.TempDir(), vms: map[string]*modelVM{}}}
	m.fs = castest.NewCrashFS(seed)
	m.open()
	m.run(seed, []modelStep{
		{2, m.create}, {30, m.checkpoint}, {4, m.fork}, {8, m.rewind}, {4, m.pin}, {1, m.delete}, {10, m.read}, {2, m.diff},
		{4, m.collect}, {4, m.removeOne}, {1, m.cut}, {1, m.powerOff}, {1, m.whole}, {2, func() { forget(m.s) }}, {2, m.hold},
	})
	m.check()
	m.whole()
	for _, release := range m.holds {
		release()
	}
	for _, id := range slices.Sorted(maps.Keys(m.vms)) {
		m.must(m.s.DeleteVM(context.Background(), id))
	}
	gc(t, m.s, GCOptions{Apply: true})
	if st := m.packs.Stats(); st.Packs != 0 {
		t.Errorf("all is deleted and %d packs of %d bytes are left", st.Packs, st.PackBytes)
	}
}

func (m *packModel) open() {
	chunks, err := local.Open(context.Background(), local.Config{Dir: "/chunks", FS: m.fs, TargetPackBytes: 200_000, ReserveBytes: -1})
	m.must(err)
	m.packs = chunks
	m.s = reopen(m.t, filepath.Join(m.dir, "meta"), chunks)
}

// collect thins by chance and collects.
func (m *packModel) collect() {
	m.thinned(m.s.GC(context.Background(), m.options()))
}

func (m *packModel) options() GCOptions {
	o := GCOptions{Apply: m.rng.IntN(4) > 0, Retention: &Retention{KeepLast: m.rng.IntN(12)}}
	if o.Retention.KeepLast == 0 {
		o.Retention = nil
	}
	if m.rng.IntN(3) == 0 {
		o.Budget.CopyBytes = 50_000
	}
	return o
}

// thinned makes the model's histories what a collection said it made of the store's.
func (m *packModel) thinned(r GCReport, err error) {
	m.t.Helper()
	m.must(err)
	if r.Applied {
		m.forgetRemoved(r.Removed)
	}
}

func (m *packModel) forgetRemoved(removed []RemovedCheckpoint) {
	byVM := map[string][]int{}
	for _, c := range removed {
		v := m.vms[c.VM]
		switch p := v.points[c.Number]; {
		case p == nil, p.pinned, v.head == c.Number, c.Number == 0:
			m.t.Fatalf("%s@%d was removed: %+v, head %d", c.VM, c.Number, p, v.head)
		}
		delete(v.points, c.Number)
		byVM[c.VM] = append(byVM[c.VM], c.Number)
	}
	for vm := range byVM {
		v := m.vms[vm]
		v.ledger = append(v.ledger, "removed")
		for n, p := range v.points {
			parent := v.was[n]
			for parent >= 0 && v.points[parent] == nil {
				parent = v.was[parent]
			}
			p.parent = parent
		}
	}
}

func (m *packModel) removeOne() {
	id, v := m.any()
	n, p := m.anyPoint(v)
	if p == nil {
		return
	}
	err := m.s.RemoveCheckpoints(context.Background(), id, []int{n}, "model")
	if errors.Is(err, ErrInUse) {
		if !p.pinned && v.head != n && n != 0 && !m.isForked(id, n) {
			m.t.Fatalf("%s@%d may go: %v", id, n, err)
		}
		return
	}
	m.must(err)
	m.forgetRemoved([]RemovedCheckpoint{{VM: id, Number: n}})
}

func (m *packModel) isForked(vm string, n int) bool {
	all, err := m.s.VMs(context.Background())
	m.must(err)
	for _, v := range all {
		c, err := m.s.Checkpoint(context.Background(), v.ID, 0)
		if err == nil && c.From != nil && *c.From == (ForkPoint{vm, n}) {
			return true
		}
	}
	return false
}

// hold reads from a snapshot whose checkpoint may go meanwhile.
func (m *packModel) hold() {
	id, v := m.any()
	n, p := m.anyPoint(v)
	if p == nil || len(m.holds) > 3 {
		return
	}
	c, err := m.s.Checkpoint(context.Background(), id, n)
	m.must(err)
	release := m.s.Hold(c.Snapshot)
	im, mem := image(m.t, m.s, c.Snapshot, "mem"), p.mem
	m.holds = append(m.holds, func() {
		forget(m.s)
		mustHold(m.t, im, mem)
		release()
	})
}

// release ends what was held: machines don't outlive the power.
func (m *packModel) releaseAll() {
	for _, release := range m.holds {
		release()
	}
	m.holds = nil
}

func (m *packModel) powerOff() {
	m.releaseAll()
	m.restart()
}

func (m *packModel) restart() {
	m.holds = nil
	m.must(m.s.Close())
	after := m.fs.AfterCrash()
	m.packs.Close() // its disk is gone; what that answers says nothing
	m.fs = after
	m.open()
	m.check()
}

// cut cuts the power somewhere in a collection or a checkpoint.
func (m *packModel) cut() {
	m.releaseAll()
	m.fs.CutAt(1 + m.rng.IntN(40))
	if m.rng.IntN(2) == 0 {
		r, _ := m.s.GC(context.Background(), m.options())
		if r.Applied {
			m.forgetRemoved(r.Removed)
		}
	} else {
		m.tryAny() // what it says it has done must be there afterwards
	}
	m.restart()
}

// tryAny is a checkpoint that may fail; when it doesn't, the model has it too.
func (m *packModel) tryAny() error {
	id, v := m.any()
	size := uint64(memBytes)
	if v.head >= 0 {
		size = v.points[v.head].bytes
	}
	ch := m.change(size / 4096)
	c, err := tryCheckpoint(m.s, id, size, ch)
	if err != nil {
		return err
	}
	after := &modelPoint{parent: v.head, mem: delta{}, bytes: size}
	if v.head >= 0 {
		after.mem = maps.Clone(v.points[v.head].mem)
	}
	maps.Copy(after.mem, ch)
	v.points[c.Number], v.was[c.Number] = after, v.head
	v.head, v.next = c.Number, v.next+1
	v.ledger = append(v.ledger, "checkpoint")
	return nil
}

// whole checks the store itself.
func (m *packModel) whole() {
	r, err := m.s.Check(context.Background(), CheckOptions{Read: 1})
	if err != nil && !errors.Is(err, ErrNothingChecked) {
		m.t.Fatal(err)
	}
	if len(r.Findings) > 0 {
		m.t.Fatal(fmt.Sprintf("%d findings, the first: %+v", len(r.Findings), r.Findings[0]))
	}
}
