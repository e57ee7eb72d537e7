package qemu

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// cpuInfo is what /proc/cpuinfo says of the first processor.
type cpuInfo struct {
	model string // vendor, family, model, stepping
	flags []string
}

func parseCPUInfo(text string) cpuInfo {
	var c cpuInfo
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			break // the end of the first processor
		}
		values[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	c.model = strings.Join([]string{values["vendor_id"], values["cpu family"], values["model"], values["stepping"]}, "-")
	c.flags = strings.Fields(values["flags"])
	return c
}

// hardwareVirtualization says whether the CPU itself can run a guest.
func (c cpuInfo) hardwareVirtualization() bool {
	return slices.Contains(c.flags, "vmx") || slices.Contains(c.flags, "svm")
}

// digest is the same on hosts whose CPUs a guest can't tell apart: same model, same features.
func (c cpuInfo) digest() string {
	flags := slices.Clone(c.flags)
	slices.Sort(flags)
	sum := sha256.Sum256([]byte(c.model + " " + strings.Join(flags, " ")))
	return fmt.Sprintf("%s-%x", c.model, sum[:4])
}
