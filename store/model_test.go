package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flash/cas"
	"flash/cas/castest"
)

var (
	modelSeed    = flag.Uint64("seed", 0, "seed of the model test; 0: another one each time")
	modelSteps   = flag.Int("steps", 0, "steps of the model tests; 0: as many as there is time for")
	modelSeconds = flag.Float64("seconds", 1.5, "how long a model test goes on")
)

// model is the store in plain Go: what each VM's history is, and what each checkpoint's memory holds.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	s      *Store
	chunks *castest.Memory
	dir    string
	vms    map[string]*modelVM
	named  int // VMs made so far
}

type modelVM struct {
	head, next int
	was        map[int]int // each checkpoint's parent when it was made, also of those that are gone
	points     map[int]*modelPoint
	ledger     []string
}

type modelPoint struct {
	parent int
	pinned bool
	mem    delta
	bytes  uint64
}

func TestAnyHistoryIsWhatTheModelSays(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), chunks: castest.NewMemory(), dir: t.TempDir(), vms: map[string]*modelVM{}}
	m.s = reopen(t, m.dir, m.chunks)
	m.run(seed, []modelStep{
		{2, m.create}, {30, m.checkpoint}, {4, m.fork}, {8, m.rewind}, {4, m.pin}, {1, m.delete}, {8, m.read}, {4, m.diff},
		{4, m.fail}, {2, m.collect}, {2, func() { forget(m.s) }}, {1, func() { m.chunks.Move() }}, {1, m.crash},
	})
	m.check()
}

type modelStep struct {
	weight int
	do     func()
}

// run takes steps by chance until the time is over, or as many as were asked for.
func (m *model) run(seed uint64, steps []modelStep) {
	end := time.Now().Add(time.Duration(*modelSeconds * float64(time.Second)))
	total, done := 0, 0
	defer func() {
		m.t.Logf("%d steps; again: go test ./store -run '^%s$' -seed %d -steps %d", done, m.t.Name(), seed, done+1)
	}()
	for _, st := range steps {
		total += st.weight
	}
	for ; *modelSteps > 0 && done < *modelSteps || *modelSteps == 0 && time.Now().Before(end); done++ {
		pick := m.rng.IntN(total)
		for _, st := range steps {
			if pick -= st.weight; pick < 0 {
				st.do()
				break
			}
		}
	}
}

func (m *model) any() (string, *modelVM) {
	if len(m.vms) == 0 {
		m.create()
	}
	ids := slices.Sorted(maps.Keys(m.vms))
	id := ids[m.rng.IntN(len(ids))]
	return id, m.vms[id]
}

func (m *model) anyPoint(v *modelVM) (int, *modelPoint) {
	numbers := slices.Sorted(maps.Keys(v.points))
	if len(numbers) == 0 {
		return -1, nil
	}
	n := numbers[m.rng.IntN(len(numbers))]
	return n, v.points[n]
}

func (m *model) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) create() {
	if len(m.vms) > 6 {
		return
	}
	m.named++
	id := fmt.Sprintf("vm-%d", m.named%9)
	err := m.s.CreateVM(context.Background(), VM{ID: id}, nil)
	if m.vms[id] != nil {
		if !errors.Is(err, ErrExists) {
			m.t.Fatalf("create %s again: %v", id, err)
		}
		return
	}
	m.must(err)
	m.vms[id] = &modelVM{head: -1, next: 1, was: map[int]int{}, points: map[int]*modelPoint{}, ledger: []string{"created"}}
}

// sizes are images of one and of two levels, and one that ends inside a slot.
var sizes = []uint64{300 << 10, memBytes, memBytes + 100}

func (m *model) change(slots uint64) delta {
	ch := delta{}
	for range 1 + m.rng.IntN(1<<m.rng.IntN(8)) {
		slot := m.rng.Uint64N(slots)
		if m.rng.IntN(16) == 0 {
			slot = slots - 1
		}
		switch m.rng.IntN(6) {
		case 0:
			ch[slot] = make([]byte, cas.SlotBytes)
		case 1:
			ch[slot] = filled(byte(m.rng.IntN(3)))
		default:
			ch[slot] = page(m.rng.Uint64N(500))
		}
	}
	return ch
}

func (m *model) checkpoint() {
	id, v := m.any()
	before := &modelPoint{mem: delta{}, bytes: sizes[m.rng.IntN(len(sizes))]}
	if v.head >= 0 {
		before = v.points[v.head]
	}
	after := &modelPoint{parent: v.head, mem: maps.Clone(before.mem), bytes: before.bytes}
	if m.rng.IntN(20) == 0 { // another length: all that isn't given is zero
		after.bytes, after.mem = sizes[m.rng.IntN(len(sizes))], maps.Clone(before.mem)
		if after.bytes != before.bytes {
			after.mem = delta{}
		}
	}
	slots := (after.bytes + cas.SlotBytes - 1) / cas.SlotBytes
	ch := m.change(slots)
	for slot, p := range ch {
		after.mem[slot] = p
		if slot == slots-1 && after.bytes%cas.SlotBytes != 0 {
			after.mem[slot] = slices.Concat(p[:after.bytes%cas.SlotBytes], make([]byte, cas.SlotBytes-after.bytes%cas.SlotBytes))
		}
	}
	c, err := tryCheckpoint(m.s, id, after.bytes, ch)
	m.must(err)
	if c.Number != v.next || c.Parent != v.head {
		m.t.Fatalf("%s: checkpoint %+v, want number %d parent %d", id, c, v.next, v.head)
	}
	v.points[v.next], v.was[v.next] = after, v.head
	v.head, v.next = v.next, v.next+1
	v.ledger = append(v.ledger, "checkpoint")
}

func (m *model) fork() {
	id, v := m.any()
	n, point := m.anyPoint(v)
	if point == nil || len(m.vms) > 6 {
		return
	}
	m.named++
	child := fmt.Sprintf("vm-%d", m.named%9)
	if m.vms[child] != nil {
		return
	}
	m.must(m.s.CreateVM(context.Background(), VM{ID: child}, &ForkPoint{id, n}))
	m.vms[child] = &modelVM{head: 0, next: 1, was: map[int]int{0: -1}, ledger: []string{"fork_point"},
		points: map[int]*modelPoint{0: {parent: -1, mem: point.mem, bytes: point.bytes}}}
	v.ledger = append(v.ledger, "fork")
}

func (m *model) rewind() {
	id, v := m.any()
	if n, point := m.anyPoint(v); point != nil {
		m.must(m.s.MoveHead(context.Background(), id, n, "rewind"))
		v.head = n
		v.ledger = append(v.ledger, "rewind")
	}
}

func (m *model) pin() {
	id, v := m.any()
	if n, point := m.anyPoint(v); point != nil {
		point.pinned = !point.pinned
		m.must(m.s.SetPinned(context.Background(), id, n, point.pinned))
	}
}

func (m *model) delete() {
	id, _ := m.any()
	m.must(m.s.DeleteVM(context.Background(), id))
	delete(m.vms, id)
}

func (m *model) fail() {
	id, _ := m.any()
	m.chunks.FailAt(1+m.rng.IntN(12), errInjected)
	if m.rng.IntN(3) == 0 {
		m.chunks.FailAt(0, nil)
		failCommits(m.s, 1)
	}
	v := m.vms[id]
	size := uint64(memBytes)
	if v.head >= 0 {
		size = v.points[v.head].bytes
	}
	ch := m.change(size / cas.SlotBytes)
	c, err := tryCheckpoint(m.s, id, size, ch)
	m.chunks.FailAt(0, nil)
	m.s.beforeCommit = nil
	switch {
	case err != nil && !errors.Is(err, errInjected):
		m.t.Fatal(err)
	case err == nil: // there were fewer operations
		after := &modelPoint{parent: v.head, mem: delta{}, bytes: size}
		v.was[c.Number] = v.head
		if v.head >= 0 {
			after.mem = maps.Clone(v.points[v.head].mem)
		}
		maps.Copy(after.mem, ch)
		v.points[c.Number], v.head, v.next = after, c.Number, v.next+1
		v.ledger = append(v.ledger, "checkpoint")
	}
}

func (m *model) collect() { sweep(m.t, m.s, m.chunks) }

func (m *model) crash() {
	m.must(m.s.Close())
	m.chunks = m.chunks.Crash()
	m.s = reopen(m.t, m.dir, m.chunks)
	m.check()
}

func (m *model) imageOf(id string, n int) *Image {
	c, err := m.s.Checkpoint(context.Background(), id, n)
	m.must(err)
	return image(m.t, m.s, c.Snapshot, "mem")
}

func (m *model) read() {
	id, v := m.any()
	if n, point := m.anyPoint(v); point != nil {
		im := m.imageOf(id, n)
		if im.Bytes() != point.bytes {
			m.t.Fatalf("%s@%d: %d bytes, want %d", id, n, im.Bytes(), point.bytes)
		}
		mustHold(m.t, im, point.mem)
	}
}

func (m *model) diff() {
	id, v := m.any()
	a, pa := m.anyPoint(v)
	b, pb := m.anyPoint(v)
	if pa == nil || pa.bytes != pb.bytes {
		return
	}
	var want, got []uint64
	zero := make([]byte, cas.SlotBytes)
	for slot := range (pa.bytes + cas.SlotBytes - 1) / cas.SlotBytes {
		x, y := pa.mem[slot], pb.mem[slot]
		if x == nil {
			x = zero
		}
		if y == nil {
			y = zero
		}
		if !bytes.Equal(x, y) {
			want = append(want, slot)
		}
	}
	for slot, err := range m.imageOf(id, a).Diff(context.Background(), m.imageOf(id, b)) {
		m.must(err)
		got = append(got, slot)
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("%s@%d and @%d differ in %v, want %v", id, a, b, got, want)
	}
}

// check compares all that can be listed.
func (m *model) check() {
	ctx := context.Background()
	all, err := m.s.VMs(ctx)
	m.must(err)
	if len(all) != len(m.vms) {
		m.t.Fatalf("%d VMs, want %d", len(all), len(m.vms))
	}
	for _, got := range all {
		v := m.vms[got.ID]
		if v == nil || got.Head != v.head || got.Next != v.next {
			m.t.Fatalf("VM %+v, want %+v", got, v)
		}
		h, err := m.s.History(ctx, got.ID)
		m.must(err)
		if len(h) != len(v.points) {
			m.t.Fatalf("%s: %d checkpoints, want %d", got.ID, len(h), len(v.points))
		}
		for _, c := range h {
			if p := v.points[c.Number]; p == nil || c.Parent != p.parent || c.Pinned != p.pinned {
				m.t.Fatalf("%s: checkpoint %+v, want %+v", got.ID, c, p)
			}
		}
		if kinds := ledgerKinds(m.t, m.s, got.ID); !slices.Equal(kinds, v.ledger) {
			m.t.Fatalf("%s: ledger %v, want %v", got.ID, kinds, v.ledger)
		}
	}
}
