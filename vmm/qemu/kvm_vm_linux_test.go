package qemu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"flash/memtrack"
	"flash/vmm"
)

// needKVM gives an engine that uses KVM. Where KVM doesn't truly work the test skips, unless FLASH_REQUIRE says that it must.
// `make test-kvm` runs these on an emulated machine with a kernel before Linux 6.7.
func needKVM(t *testing.T) (*Engine, vmm.Capabilities) {
	t.Helper()
	e := testEngine(t, Config{PoolSize: -1})
	caps, err := e.Probe(t.Context())
	if err == nil && caps.Facts.Accel != "kvm" {
		err = errors.New(caps.Reasons["kvm"])
	}
	if err != nil {
		if strings.Contains(os.Getenv("FLASH_REQUIRE"), "kvm") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Logf("%+v", caps)
	return e, caps
}

func TestKVMMachineIsTheOneThatWasSaved(t *testing.T) {
	e, caps := needKVM(t)
	f := caps.Facts
	if f.MachineType != "microvm" || !strings.HasPrefix(f.CPU, "host/") || len(f.CPU) < len("host/x") || !caps.LazyPager {
		t.Errorf("%+v", caps)
	}
	s := savedAndRestored(t, e)
	if s.state.Facts != f {
		t.Errorf("the state was taken on %+v, this host is %+v", s.state.Facts, f)
	}
}

func TestKVMRefusesTheStateOfAnEmulatedMachineAndTheOtherWayRound(t *testing.T) {
	kvm, caps := needKVM(t)
	tcg := testEngine(t, Config{PoolSize: -1, Accel: "tcg"})
	emulated, err := tcg.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		e           *Engine
		there, here vmm.Facts
	}{{kvm, emulated.Facts, caps.Facts}, {tcg, caps.Facts, emulated.Facts}} {
		state := vmm.State{Data: append([]byte(nil), stateMagic...), Facts: c.there}
		_, err := c.e.Restore(t.Context(), vmm.Spec{VCPUs: 1, MemBytes: testMemBytes}, vmm.Attach{Memory: make(image, testMemBytes/memtrack.PageBytes)}, state)
		if !errors.Is(err, vmm.ErrIncompatible) {
			t.Fatal(err)
		}
		for _, says := range []string{
			fmt.Sprintf("accelerator is %s there and %s here", c.there.Accel, c.here.Accel),
			fmt.Sprintf("machine type is %s there and %s here", c.there.MachineType, c.here.MachineType),
			fmt.Sprintf("CPU model is %s there and %s here", c.there.CPU, c.here.CPU),
		} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("no %q in: %v", says, err)
			}
		}
		t.Log(err)
	}
}

// Before Linux 6.7 there is no PAGEMAP_SCAN. Whatever tracks instead misses no page, neither those that KVM writes, nor those
// of devices; all memory is compared.
func TestKVMTrackingMissesNoWrittenPage(t *testing.T) {
	e, caps := needKVM(t)
	g := boot(t, e, testSpec(t), vmm.Attach{})
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	oracle := memtrack.NewHashTracker(memtrack.Same, 1)
	if err := oracle.Start(g.Memory()); err != nil {
		t.Fatal(err)
	}
	first, err := g.Tracker().Cut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Commit()
	n := 1
	for round := range 3 {
		if err := g.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			n++
			g.wants(fmt.Sprint("work ", n), count(n)+fmt.Sprintf(" %d", n))
		}
		if err := g.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := g.Tracker().Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reported := slices.Collect(d.Slots())
		changed, err := oracle.Cut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		missed := 0
		for page := range changed.Slots() {
			if _, found := slices.BinarySearch(reported, page); !found {
				missed++
			}
		}
		t.Logf("round %d: %s reported %d pages; %d changed, %d missed", round, caps.Tracker, d.Len(), changed.Len(), missed)
		if missed > 0 || changed.Len() == 0 {
			t.Errorf("round %d: %d of %d changed pages missed", round, missed, changed.Len())
		}
		d.Commit()
		changed.Commit()
	}
}

func TestOlderKernelTracksBySoftDirtyAndIsLazyAllTheSame(t *testing.T) {
	_, caps := needKVM(t)
	if caps.Tracker == "pagemap-scan" {
		t.Skip("this kernel has PAGEMAP_SCAN")
	}
	if caps.Tracker != "soft-dirty" || !caps.LazyPager || !caps.Shared || caps.Reasons["pagemap-scan"] == "" {
		t.Errorf("%+v", caps)
	}
}
