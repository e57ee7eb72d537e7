package host

import (
	"strconv"

	"flash/store"
	"flash/vmm"
	"flash/vmm/guest"
)

// Keys of a checkpoint's Meta.Facts.
const (
	factEngine     = "engine"
	factVersion    = "engine_version"
	factMachine    = "machine_type"
	factCPU        = "cpu"
	factAccel      = "accel"
	factLayout     = "device_layout"
	factBundle     = "bundle"
	factVM         = "flashvm"
	factGeneration = "agent_generation"
	factProtocol   = "agent_protocol"
	factVCPUs      = "vcpus"
	kindCheckpoint = "checkpoint"
)

// factsOf reads what the engine compares. A missing one is an error, never a default.
func factsOf(m store.Meta) (vmm.Facts, error) {
	if m.Kind != kindCheckpoint {
		return vmm.Facts{}, Errorf(CodeCorrupt, "run flash check", "a snapshot of kind %q can't be restored", m.Kind)
	}
	f := vmm.Facts{Engine: m.Facts[factEngine], Version: m.Facts[factVersion], MachineType: m.Facts[factMachine], CPU: m.Facts[factCPU], Accel: m.Facts[factAccel], Layout: m.Facts[factLayout]}
	for key, value := range map[string]string{factEngine: f.Engine, factVersion: f.Version, factMachine: f.MachineType, factCPU: f.CPU, factAccel: f.Accel, factLayout: f.Layout} {
		if value == "" {
			return vmm.Facts{}, Errorf(CodeIncompatible, "restore it with the version of flash that took it", "the checkpoint doesn't say its %s", key)
		}
	}
	if p := m.Facts[factProtocol]; p != strconv.Itoa(guest.Protocol) {
		return vmm.Facts{}, Errorf(CodeIncompatible, "restore it with the version of flash that took it", "the agent in the checkpoint speaks protocol %q, and this flash speaks %d", p, guest.Protocol)
	}
	return f, nil
}

// generationOf is the newest session that the guest in a snapshot has seen; 0 for a bundle.
func generationOf(m store.Meta) uint64 {
	n, _ := strconv.ParseUint(m.Facts[factGeneration], 10, 64)
	return n
}
