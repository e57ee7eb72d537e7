package qemu

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"flash/blockdelta"
	"flash/memtrack"
	"flash/vmm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A golden is read as a diff: a changed line is a changed device layout, which needs another Layout.
func TestArgumentsAreThoseOfTheLayout(t *testing.T) {
	tcg := hostFacts("7.2.22", "tcg", "")
	kvm := hostFacts("8.2.1", "kvm", "AuthenticAMD-25-1-1-01234567")
	boot := &bootFrom{files: make([]*os.File, 2), cmdline: "flash.agent=1", mac: "52:54:00:12:34:56"}
	for name, got := range map[string][]string{
		"tcg-boot": arguments(shape{tcg, 2, 512 << 20, 1}, boot),
		"tcg-wait": arguments(shape{tcg, 1, 4 << 30, 2}, nil),
		"kvm-boot": arguments(shape{kvm, 1, 512 << 20, 1}, &bootFrom{files: make([]*os.File, 1)}),
		"kvm-wait": arguments(shape{kvm, 1, 512 << 20, 0}, nil),
	} {
		// One option a line, with its value.
		text := strings.ReplaceAll(strings.Join(got, "\n")+"\n", "\n-", "\x00-")
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "\x00", "\n")
		text = strings.TrimSpace(text) + "\n"
		path := filepath.Join("testdata", name+".args")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s differs (go test ./vmm/qemu -run Arguments -update rewrites it):\n%s", name, text)
		}
	}
}

// Whatever is on a booting machine's command line must be on a waiting one's, but for what only a boot needs.
func TestBootedAndRestoredMachinesHaveTheSameDevices(t *testing.T) {
	for _, f := range []vmm.Facts{hostFacts("7.2.22", "tcg", ""), hostFacts("7.2.22", "kvm", "x")} {
		s := shape{f, 2, 1 << 30, 3}
		booted := arguments(s, &bootFrom{files: make([]*os.File, 2)})
		waiting := arguments(s, nil)
		if i := slices.Index(booted, "-kernel"); !slices.Equal(booted[:i], waiting[:i]) {
			t.Errorf("%s:\n%q\n%q", f.MachineType, booted[:i], waiting[:i])
		}
	}
}

func TestEveryFactIsCompared(t *testing.T) {
	here := hostFacts("7.2.22", "tcg", "")
	if err := compareFacts(here, here); err != nil {
		t.Fatal(err)
	}
	fields := reflect.TypeFor[vmm.Facts]()
	if fields.NumField() != len(factFields) {
		t.Errorf("%d facts, %d compared", fields.NumField(), len(factFields))
	}
	for i := range fields.NumField() {
		for _, value := range []string{"", "other"} {
			there := here
			reflect.ValueOf(&there).Elem().Field(i).SetString(value)
			err := compareFacts(there, here)
			if err == nil || value != "" && !strings.Contains(err.Error(), "other") {
				t.Errorf("%s %q: %v", fields.Field(i).Name, value, err)
			}
			if err := compareFacts(here, there); err == nil {
				t.Errorf("%s %q on this host is accepted", fields.Field(i).Name, value)
			}
		}
	}
}

func TestImpossibleMachinesAreRefused(t *testing.T) {
	good := vmm.Spec{VCPUs: 1, MemBytes: 512 << 20, MAC: "52:54:00:12:34:56"}
	dir := vmm.Attach{Dir: "/run/m"}
	if _, err := shapeOf(good, dir, vmm.Facts{}); err != nil {
		t.Fatal(err)
	}
	tooMany := dir
	for i := range maxDisks + 1 {
		tooMany.Disks = append(tooMany.Disks, vmm.Disk{Name: fmt.Sprint("d", i), Overlay: new(blockdelta.Overlay)})
	}
	for name, c := range map[string]struct {
		change func(*vmm.Spec)
		attach vmm.Attach
	}{
		"no CPU":      {func(s *vmm.Spec) { s.VCPUs = 0 }, dir},
		"many CPUs":   {func(s *vmm.Spec) { s.VCPUs = 1000 }, dir},
		"no memory":   {func(s *vmm.Spec) { s.MemBytes = 0 }, dir},
		"odd memory":  {func(s *vmm.Spec) { s.MemBytes += memtrack.PageBytes }, dir},
		"much memory": {func(s *vmm.Spec) { s.MemBytes = 1 << 50 }, dir},
		"no MAC":      {func(s *vmm.Spec) { s.MAC = "52:54" }, dir},
		"long MAC":    {func(s *vmm.Spec) { s.MAC = "02:00:5e:10:00:00:00:01" }, dir},
		"many disks":  {func(*vmm.Spec) {}, tooMany},
		"bare disk":   {func(*vmm.Spec) {}, vmm.Attach{Dir: "/run/m", Disks: []vmm.Disk{{Name: "disk0"}}}},
	} {
		s := good
		c.change(&s)
		if _, err := shapeOf(s, c.attach, vmm.Facts{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
