package memtrack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // of Start in the file
	Shared     bool
	Device     uint64 // of the file, as in stat; 0: none
	Inode      uint64
	Name       string // as the kernel writes it; "" for anonymous memory
}

// Mappings gives what a process has mapped, in ascending order.
func Mappings(pid int) ([]Mapping, error) {
	path := fmt.Sprintf("/proc/%d/maps", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Mapping
	for line := range strings.Lines(string(text)) {
		m, err := parseMapping(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("read %s: line %q: %w", path, line, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// parseMapping reads "start-end perms offset major:minor inode   name".
func parseMapping(line string) (Mapping, error) {
	var m Mapping
	var perms string
	var major, minor uint32
	if n, err := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d", &m.Start, &m.End, &perms, &m.Offset, &major, &minor, &m.Inode); n != 7 {
		return Mapping{}, err
	}
	if m.End <= m.Start || len(perms) != 4 {
		return Mapping{}, fmt.Errorf("not a mapping")
	}
	m.Shared = perms[3] == 's'
	m.Device = unix.Mkdev(major, minor)
	if fields := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 6); len(fields) == 6 {
		m.Name = fields[5]
	}
	return m, nil
}

// Continues tells whether m goes on, in memory and in the file, where the mapping that begins with first ends so far.
func (m Mapping) Continues(first Mapping, end uint64) bool {
	return m.Start == end && m.Inode == first.Inode && m.Device == first.Device && m.Inode != 0 && m.Shared == first.Shared &&
		m.Offset == first.Offset+(end-first.Start)
}

// Within gives the mappings that a span covers or touches.
func (s Span) Within() ([]Mapping, error) {
	all, err := Mappings(s.PID)
	if err != nil {
		return nil, err
	}
	var found []Mapping
	for _, m := range all {
		if m.Start < s.End && m.End > s.Start {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("process %d has nothing mapped at %x-%x", s.PID, s.Start, s.End)
	}
	return found, nil
}

// OpenBehind opens the file behind a mapping by a descriptor that the process holds of it; unlike /proc/PID/map_files that
// needs no more than the right to trace the process.
func OpenBehind(pid int, m Mapping, flag int) (*os.File, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Ino == m.Inode && st.Dev == m.Device {
			return os.OpenFile(path, flag, 0)
		}
	}
	return nil, fmt.Errorf("process %d holds no descriptor of %q (inode %d), which it has mapped", pid, m.Name, m.Inode)
}
