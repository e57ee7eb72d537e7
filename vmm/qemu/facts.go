package qemu

import (
	"fmt"
	"strings"

	"flash/vmm"
)

// factFields names every field of Facts, in the order in which differences are told. TestEveryFactIsCompared holds it complete.
var factFields = []struct {
	name string
	of   func(vmm.Facts) string
}{
	{"engine", func(f vmm.Facts) string { return f.Engine }},
	{"accelerator", func(f vmm.Facts) string { return f.Accel }},
	{"QEMU version", func(f vmm.Facts) string { return f.Version }},
	{"machine type", func(f vmm.Facts) string { return f.MachineType }},
	{"CPU model", func(f vmm.Facts) string { return f.CPU }},
	{"device layout", func(f vmm.Facts) string { return f.Layout }},
}

// compareFacts says what keeps a state with the facts want from loading here; nil if nothing does.
// An unknown fact is an error, not a match.
func compareFacts(want, here vmm.Facts) error {
	var differ []string
	for _, field := range factFields {
		w, h := field.of(want), field.of(here)
		switch {
		case w == "":
			differ = append(differ, field.name+" is missing from the state")
		case h == "":
			differ = append(differ, field.name+" of this host is unknown")
		case w != h:
			differ = append(differ, fmt.Sprintf("%s is %s there and %s here", field.name, w, h))
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", vmm.ErrIncompatible, strings.Join(differ, "; "))
}

// hostFacts are the facts of machines made here. version is "7.2.22", cpuFlags stands for the host's CPU (KVM only).
//
// Under TCG the model (tcgCPU) is fixed by QEMU's version alone, which is compared; under KVM "host" is the host's own CPU, so
// the fact carries a digest of it. q35 is versioned by name; microvm isn't, so there QEMU's version is what fixes it.
// Under TCG it must be q35: half the boots of a microvm hang in timer calibration. Under KVM it must be microvm, which
// boots where KVM is itself emulated and a q35 doesn't.
func hostFacts(version, accel, hostCPU string) vmm.Facts {
	f := vmm.Facts{Engine: Name, Version: version, Accel: accel, Layout: Layout}
	if accel == "kvm" {
		f.MachineType, f.CPU = "microvm", "host/"+hostCPU
		return f
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	f.MachineType, f.CPU = "pc-q35-"+major+"."+minor, tcgCPU
	return f
}
