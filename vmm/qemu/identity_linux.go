package qemu

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"flash/vmm"
)

// identify reads what tells a process from another one that gets its number later.
func identify(pid int) (vmm.Process, error) {
	fields, err := statFields(pid)
	if err != nil {
		return vmm.Process{}, err
	}
	start, err := strconv.ParseUint(fields[19], 10, 64) // field 22 of the file; fields begins with the 3rd
	if err != nil {
		return vmm.Process{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return vmm.Process{}, err
	}
	return vmm.Process{PID: pid, Start: start, Exe: strings.TrimSuffix(exe, " (deleted)")}, nil
}

// isStill says whether id's number still belongs to it. An ended process that wasn't reaped has no executable any more, but
// while we are its parent its number can't be given away: the start time decides.
func isStill(id vmm.Process) bool {
	now, err := identify(id.PID)
	if err == nil {
		return now == id
	}
	fields, err := statFields(id.PID)
	return err == nil && fields[0] == "Z" && fields[19] == strconv.FormatUint(id.Start, 10)
}

// statFields gives /proc/PID/stat from the 3rd field on; the 2nd, the name, may hold anything.
func statFields(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return nil, fmt.Errorf("/proc/%d/stat: no name in %.80q", pid, data)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields)+2)
	}
	return fields, nil
}

// describe says what a process is doing, for the sentence about an answer that didn't come.
func describe(pid int) string {
	fields, err := statFields(pid)
	if err != nil {
		return fmt.Sprintf("process %d is gone", pid)
	}
	states := map[string]string{
		"R": "running", "S": "sleeping", "D": "waiting for the disk or a page of memory", "T": "stopped by a signal",
		"t": "stopped by a tracer", "Z": "dead", "X": "dead",
	}
	state, ok := states[fields[0]]
	if !ok {
		state = "in state " + fields[0]
	}
	return fmt.Sprintf("process %d is %s", pid, state)
}
