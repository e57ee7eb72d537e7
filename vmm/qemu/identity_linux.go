package qemu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

// becomeLimit bounds how long a child may take to become its program after its start. Seen: 25 ms.
const becomeLimit = 5 * time.Second

// identifyChild identifies a child that was just started. Its executable may for a moment still be told as this process's own:
// so it was on a slow machine with Linux 6.1, at 3 to 7 of 100 starts, after Start had returned. An identity taken then is
// nobody's a moment later, and the machine could never be killed.
func identifyChild(pid int, program string) (vmm.Process, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return vmm.Process{}, err
	}
	self = strings.TrimSuffix(self, " (deleted)")
	if resolved, err := filepath.EvalSymlinks(program); err == nil && resolved == self {
		return identify(pid) // it is meant to run what this process runs
	}
	for deadline, wait := time.Now().Add(becomeLimit), 50*time.Microsecond; ; wait = min(2*wait, 5*time.Millisecond) {
		id, err := identify(pid)
		if err != nil || id.Exe != self {
			return id, err
		}
		if time.Now().After(deadline) {
			return vmm.Process{}, fmt.Errorf("process %d was to become %s and is still %s after %v", pid, program, self, becomeLimit)
		}
		time.Sleep(wait)
	}
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
