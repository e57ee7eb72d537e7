package bench

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// guestPSS gives the proportional set size of a process's guest memory in MiB: the mappings of memory files
// (proc(5), smaps), each shared page divided by its sharers.
func guestPSS(pid int) (float64, bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var kib, n float64
	counting, found := false, false
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		line := scan.Text()
		if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "-") {
			counting = strings.Contains(line, "memfd:")
			found = found || counting
		} else if counting {
			if _, err := fmt.Sscanf(line, "Pss: %f kB", &n); err == nil {
				kib += n
			}
		}
	}
	return kib / 1024, found && scan.Err() == nil
}
