package qemu

import (
	"fmt"
	"regexp"
	"strconv"

	"flash/vmm"
)

var versionLine = regexp.MustCompile(`(?m)^QEMU emulator version (\d+)\.(\d+)\.(\d+)`)

// parseVersion reads what `qemu-system-x86_64 --version` prints. Older than 7.2 is refused: x-ignore-shared and the
// late qom-set of a drive were measured from there on.
func parseVersion(text string) (string, error) {
	found := versionLine.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%.80q tells no version of QEMU", text)
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	version := found[1] + "." + found[2] + "." + found[3]
	if major < 7 || major == 7 && minor < 2 {
		return "", fmt.Errorf("QEMU %s is older than 7.2: %w", version, vmm.ErrUnsupported)
	}
	return version, nil
}
