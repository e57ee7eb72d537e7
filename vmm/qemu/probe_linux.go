package qemu

import (
	"context"
	"fmt"
	"maps"
	"os/exec"

	"flash/memtrack/pagemap"
	"flash/vmm"
)

// probed is what a probe found.
type probed struct {
	capabilities vmm.Capabilities
	memory       memorySupport
	accounts     *accounts // nil: QEMUs run as we do
	groups       *cgroups  // nil: they run where we do
}

// Probe finds out what this host can do: once; a probe that was cut short is not remembered.
func (e *Engine) Probe(ctx context.Context) (vmm.Capabilities, error) {
	found, err := e.probe(ctx)
	if err != nil {
		return vmm.Capabilities{}, err
	}
	c := found.capabilities
	c.Reasons = maps.Clone(c.Reasons) // the caller's
	return c, nil
}

func (e *Engine) probe(ctx context.Context) (*probed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.probed != nil {
		return e.probed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, e.binary, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", e.binary, err)
	}
	version, err := parseVersion(string(out))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.binary, err)
	}
	memory := probeMemory(ctx)
	if err := memory.restrict(e.restricted); err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	maps.Copy(reasons, memory.reasons)
	accel, hostCPU := "tcg", ""
	if e.accel == "tcg" {
		reasons["kvm"] = "the configuration says tcg"
	} else if refusal := refuseKVM(ctx); refusal == "" {
		accel = "kvm"
		if hostCPU, err = hostCPUDigest(); err != nil {
			return nil, err
		}
	} else if e.accel == "kvm" {
		return nil, fmt.Errorf("the configuration says kvm, but %s: %w", refusal, vmm.ErrUnsupported)
	} else {
		reasons["kvm"] = refusal
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("finding out what this host can do: %w", err)
	}
	needs := "" // what keeps a process without privilege from its userfaultfd, if it is to have one
	if memory.lazy || memory.tracker == (&pagemap.Scan{}).Name() {
		needs = memory.forOthers
	}
	users, why := newAccounts(ctx, e.binary, accel, needs)
	if why != "" {
		reasons["own user"] = why
	}
	maps.Copy(reasons, e.noLimits)
	groups := e.groups
	if groups != nil {
		if err := groups.try(ctx, e.binary, shape{vcpus: 1, memBytes: minMemBytes}); err != nil {
			groups, reasons["limits"] = nil, err.Error()
		}
	}
	e.probed = &probed{
		groups:   groups,
		accounts: users,
		capabilities: vmm.Capabilities{
			Facts:   hostFacts(version, accel, hostCPU),
			Tracker: memory.tracker, LazyPager: memory.lazy, Shared: memory.shared, OwnUser: users != nil, Limits: groups.names(), Reasons: reasons,
		},
		memory: memory,
	}
	return e.probed, nil
}

// support is what the probe found out about memory. Precondition: a probe succeeded.
func (e *Engine) support() memorySupport {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.probed.memory
}
