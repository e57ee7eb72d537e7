package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupMount finds where version 2 of control groups is mounted.
func cgroupMount() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	if at := parseCgroupMount(string(text)); at != "" {
		return at, nil
	}
	return "", errors.New("control groups of version 2 aren't mounted")
}

// parseCgroupMount reads mountinfo (proc(5)): the 5th field is where, after " - " comes the type.
func parseCgroupMount(text string) string {
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return strings.ReplaceAll(fields[4], `\040`, " ")
		}
	}
	return ""
}

// Leftovers are the control groups of a host's name whose processes, if any, a daemon isn't the parent of.
func Leftovers(name string, daemonPID int) (dirs []string) {
	mount, err := cgroupMount()
	if err != nil {
		return nil
	}
	all, _ := filepath.Glob(filepath.Join(mount, name, "q*"))
	for _, dir := range all {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone meanwhile
		}
		serves := false
		for pid := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(pid); err == nil {
				fields, err := statFields(n)
				serves = serves || err == nil && fields[1] == strconv.Itoa(daemonPID)
			}
		}
		if !serves {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
