package cli

import (
	"fmt"
	"strings"
	"time"

	"flash/vmm/host"
)

const maxReasonWidth = 60

func vmTable(vms []host.VM) string {
	rows := make([][]string, len(vms))
	for i, vm := range vms {
		head := "-"
		if vm.Head != nil {
			head = fmt.Sprint(*vm.Head)
		}
		rows[i] = []string{vm.ID, vm.State, vm.Bundle, fmt.Sprint(vm.VCPUs), fmt.Sprintf("%d MiB", vm.MemMiB),
			fmt.Sprint(vm.Checkpoints), head, ports(vm), age(time.Now(), vm.Created), printable(vm.Reason, maxReasonWidth)}
	}
	return table([]string{"ID", "STATE", "BUNDLE", "\tVCPUS", "\tMEMORY", "\tCHECKPOINTS", "\tHEAD", "PORTS", "\tAGE", "REASON"}, rows)
}

func ports(vm host.VM) string {
	if len(vm.Ports) == 0 {
		return "-"
	}
	var all []string
	for _, p := range vm.Ports {
		at := fmt.Sprint(p.Host)
		if p.Host == 0 {
			at = "any" // chosen when it runs
		}
		all = append(all, fmt.Sprintf("%s→%d", at, p.Guest))
	}
	return strings.Join(all, " ")
}

// vmLine tells one VM in a line, and on a second what its user must know.
func vmLine(vm host.VM) string {
	s := fmt.Sprintf("%s is %s", vm.ID, vm.State)
	if vm.Head != nil {
		s += fmt.Sprintf(" at checkpoint %d", *vm.Head)
	}
	if len(vm.Ports) > 0 {
		s += ", ports " + ports(vm)
	}
	if vm.Reason != "" && vm.Reason != vm.State {
		s += ": " + printable(vm.Reason, 0)
	}
	return s + "\n" + notice(vm)
}

func notice(vm host.VM) string {
	if vm.Notice == "" {
		return ""
	}
	return "note: " + printable(vm.Notice, 0) + "\n"
}
