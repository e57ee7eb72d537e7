package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"flash/vmm/host"
	"flash/vmm/qemu"
)

// checkLeftovers looks for machine processes of this home that no VM and no running daemon has, and for half-made
// sockets: what a crash may leave.
func checkLeftovers(home string, daemonPID int, vms []host.VM) check {
	const name = "leftovers"
	known := map[int]bool{}
	for _, vm := range vms {
		known[vm.PID] = true
	}
	var found []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if known[pid] || !machineOf(dir, home) || parentOf(dir) == daemonPID {
			continue // gone meanwhile, a VM's, not ours, or waiting in the daemon's pool
		}
		found = append(found, fmt.Sprintf("process %d", pid))
	}
	if len(found) > 0 {
		return check{name, resultWarning, strings.Join(found, ", "), "they hold memory and serve nobody", "end them: kill " + strings.ReplaceAll(strings.Join(found, " "), "process ", "")}
	}
	if groups := qemu.Leftovers(filepath.Base(runDir(home)), daemonPID); len(groups) > 0 {
		return check{name, resultWarning, strings.Join(groups, ", "), "control groups of machines that are no more", "flash serve --stop; the next command starts a daemon, which removes them"}
	}
	return check{Name: name, Result: resultOK, Found: "none"}
}

// machineOf tells whether the process of a folder of /proc is a machine of a home: its environment says so.
func machineOf(dir, home string) bool {
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), qemu.RunVariable+"="+runDir(home))
}

// parentOf reads field 4 of /proc/PID/stat; the fields are counted after the name, which may hold anything.
func parentOf(dir string) int {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[1])
	return pid
}
