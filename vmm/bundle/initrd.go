package bundle

import (
	"fmt"
	"sort"
	"strings"
)

// buildInitrd packs the agent and the kernel modules, given in the order in which they are to be loaded, and more files.
//
// It isn't compressed: under TCG the guest spends longer on unpacking than is saved by reading less, and an archive that
// isn't compressed shares chunks with its relatives. The agent comes last for the same reason: a new agent leaves the
// blocks before it as they were.
func buildInitrd(agent []byte, modules []module, more ...cpioEntry) ([]byte, error) {
	var list strings.Builder
	for _, m := range modules {
		fmt.Fprintln(&list, m.file)
	}
	entries := []cpioEntry{
		{name: "dev", mode: cpioDir | 0o755},
		// The kernel opens it for init before anyone has mounted anything.
		{name: "dev/console", mode: cpioChar | 0o600, major: 5, minor: 1},
		{name: "modules", mode: cpioDir | 0o755},
	}
	sorted := append([]module(nil), modules...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].file < sorted[j].file })
	for _, m := range sorted {
		entries = append(entries, cpioEntry{name: "modules/" + m.file, mode: cpioFile | 0o644, data: m.data})
	}
	for _, dir := range []string{"newroot", "proc", "sys"} {
		entries = append(entries, cpioEntry{name: dir, mode: cpioDir | 0o755})
	}
	entries = append(entries, more...)
	entries = append(entries,
		cpioEntry{name: "modules.list", mode: cpioFile | 0o644, data: []byte(list.String())},
		cpioEntry{name: "init", mode: cpioFile | 0o755, data: agent})
	return encodeCpio(entries)
}
