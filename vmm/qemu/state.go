package qemu

import (
	"bytes"
	"fmt"
)

// stateMagic begins every migration stream of QEMU: "QEVM" and version 3, big-endian.
var stateMagic = []byte{'Q', 'E', 'V', 'M', 0, 0, 0, 3}

// checkState refuses what can't be a state before a process is started for it. QEMU checks the rest, and ends on a fault.
func checkState(data []byte) error {
	if !bytes.HasPrefix(data, stateMagic) {
		return fmt.Errorf("%d bytes that begin with %.8q are no state of QEMU", len(data), data)
	}
	return nil
}
