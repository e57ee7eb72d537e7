package host

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"flash/vmm"
)

// endProcess kills a process that an earlier daemon left, if its number still means the same process: same start time,
// same executable (hazard: a PID was reused).
func endProcess(p vmm.Process) {
	if p.PID <= 0 || startTicks(p.PID) != p.Start {
		return
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/exe")
	if err != nil || exe != p.Exe || startTicks(p.PID) != p.Start {
		return
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// startTicks is field 22 of /proc/PID/stat (proc(5)), counted after the name, which may hold anything; 0 when there is none.
func startTicks(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	fields := strings.Fields(rest) // fields[0] is field 3
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64)
	return n
}
