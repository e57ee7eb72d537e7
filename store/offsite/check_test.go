package offsite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flash/cas"
	"flash/store"
)

func (h *host) check(read float64) CheckReport {
	h.t.Helper()
	r, err := h.Check(context.Background(), read, nil)
	h.must(err)
	return r
}

func TestACheckThatReadsNothingFails(t *testing.T) {
	a := newHost(t, "a", newMemory(), newClock())
	if r, err := a.Check(context.Background(), 1, nil); !errors.Is(err, store.ErrNothingChecked) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAnyDamageInTheBucketIsFoundAndSaysWhatItTouches(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(m *memory){
		"a flipped bit in a pack": func(m *memory) { m.damage(m.keys("packs/")[0], 200) },
		"a pack that is missing":  func(m *memory) { m.remove(m.keys("packs/")[0]) },
		"a catalogue is missing":  func(m *memory) { m.remove(m.keys("catalog/")[0]) },
		"a catalogue is damaged":  func(m *memory) { m.damage(m.keys("catalog/")[0], 90) },
		"a ref is damaged":        func(m *memory) { m.damage("vms/vm", 90) },
		"a ref is another's": func(m *memory) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.objects["vms/vm"] = m.objects["vms/other"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newMemory(), newClock()
			a := newHost(t, "a", m, c)
			a.chain("vm", 1, 3)
			a.chain("other", 2, 3)
			a.push("vm")
			a.push("other")
			if r := a.check(1); len(r.Findings) != 0 || r.Refs != 2 || r.Chunks == 0 || r.Nodes == 0 || r.Read.Records == 0 {
				t.Fatalf("%+v", r)
			}
			damage(m)
			a.reconnect()
			r, err := a.Check(ctx, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			touches := slices.ContainsFunc(r.Findings, func(f store.Finding) bool { return f.Severity == store.Damage })
			if r.Worst != store.Damage || !touches {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestDamageInTheBucketIsHealedFromHere(t *testing.T) {
	m, c := newMemory(), newClock()
	a := newHost(t, "a", m, c)
	states := a.chain("vm", 1, 6)
	a.push("vm")
	keys := m.keys("packs/")
	if len(keys) < 3 {
		t.Fatalf("%d packs", len(keys))
	}
	m.damage(keys[0], 200)
	m.remove(keys[1])
	a.reconnect()
	if r := a.check(1); r.Worst != store.Damage {
		t.Fatalf("%+v", r)
	}
	stats, err := a.Heal(context.Background(), nil)
	if err != nil || stats.LostRecords != 0 || stats.Salvaged == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	a.reconnect()
	if r := a.check(1); len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	b := newHost(t, "b", m, c)
	b.pull(PullRequest{VM: "vm"})
	b.apart(func() { b.mustHoldAll("vm", states) })
}

func TestAMissingObjectIsMadeAgainFromOtherPacksHere(t *testing.T) {
	ctx := context.Background()
	m, c := newMemory(), newClock()
	a, b := newHostOnDisk(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 6)
	a.push("vm")
	for _, key := range m.keys("packs/")[1:3] {
		// The same records are here in another pack: the near tier has repaired the one they were in.
		path := filepath.Join(a.packs, key)
		data, err := os.ReadFile(path)
		a.must(err)
		data[len(data)-30] ^= 1
		a.must(os.WriteFile(path, data, 0o600))
		m.remove(key)
	}
	repaired, err := a.near.Repair(ctx, func(cas.Damage) {})
	if err != nil || len(repaired.Quarantined) != 2 || repaired.LostRecords != 0 {
		t.Fatalf("%+v, %v", repaired, err)
	}
	a.reconnect()
	stats, err := a.Heal(ctx, nil)
	if err != nil || stats.LostRecords != 0 || stats.Salvaged == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if r := b.check(1); len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	b.pull(PullRequest{VM: "vm"})
	b.apart(func() { b.mustHoldAll("vm", states) })
}

func TestADamagedCatalogueIsMadeAgainFromThePacks(t *testing.T) {
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 4)
	a.push("vm")
	a.checkpoint("vm", state{1: 1})
	a.push("vm")
	m.damage(m.keys("catalog/")[0], 90)
	a.on(m)
	if _, err := a.Heal(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if r := b.check(1); len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	b.pull(PullRequest{VM: "vm"})
	b.apart(func() { b.mustHoldAll("vm", states) })
}

func TestDamageHereIsHealedFromTheBucket(t *testing.T) {
	m, c := newMemory(), newClock()
	a := newHostOnDisk(t, "a", m, c)
	states := a.chain("vm", 1, 6)
	a.push("vm")
	paths, err := filepath.Glob(filepath.Join(a.dir, "chunks", "packs", "*.pack"))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, p := range paths[:2] {
		data, err := os.ReadFile(p)
		a.must(err)
		for i := 100; i < len(data)-2000; i += 997 {
			data[i] ^= 1
		}
		a.must(os.WriteFile(p, data, 0o600))
	}
	stats, err := a.Heal(context.Background(), nil)
	if err != nil || len(stats.Quarantined) != 2 || stats.LostRecords != 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	a.restart()
	a.apart(func() { a.mustHoldAll("vm", states) })
}

func TestWhatOneHasOfADamagedPackIsEnoughForAnother(t *testing.T) {
	// The bucket's pack is damaged, and here the same chunks are in other packs.
	m, c := newMemory(), newClock()
	a, b := newHost(t, "a", m, c), newHost(t, "b", m, c)
	states := a.chain("vm", 1, 4)
	a.push("vm")
	b.create("same")
	for n := 1; n <= 4; n++ { // the same pages, put here by itself
		b.checkpoint("same", states[n])
	}
	b.pull(PullRequest{VM: "vm"})
	key := m.keys("packs/")[0]
	at := 200
	m.damage(key, at)
	hash := strings.TrimSuffix(strings.TrimPrefix(key, "packs/"), ".pack")
	for _, p := range b.near.Packs() {
		if strings.HasPrefix(p.Name, hash) {
			if _, err := b.near.EvictPack(context.Background(), p.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.reconnect()
	stats, err := b.Heal(context.Background(), nil)
	if err != nil || stats.Salvaged == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if r := b.check(1); stats.LostRecords == 0 && len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
}
