package qemu

import (
	"encoding/json"
	"fmt"

	"flash/vmm"
)

// Reasons of an Exit.
const (
	reasonClosed   = "closed"
	reasonShutdown = "guest shutdown"
	reasonPanic    = "guest panic"
	reasonKilled   = "killed"
	reasonMemory   = "memory lost"
)

// ending is the evidence on why a machine ended.
type ending struct {
	closed     bool   // by Close
	memory     error  // its memory could not be served any more
	panicked   bool   // GUEST_PANICKED
	shutdown   string // reason in the SHUTDOWN event; "" if none came
	passed     string // the limit of memory, in bytes, it was ended for; "": none
	status     error  // of the process; nil: 0
	stderr     string // last line
	console    string // last line
	panicLine  string // the kernel's word on its panic
	processTag string // "QEMU (process 12)"
}

// exit judges it. The order matters: what was done to a machine explains what was seen of it later.
func (e ending) exit() vmm.Exit {
	switch {
	case e.memory != nil:
		return vmm.Exit{Reason: reasonMemory, Detail: e.memory.Error(), Err: e.memory}
	case e.panicked || e.panicLine != "" && (e.shutdown == "guest-reset" || e.shutdown == "guest-panic"):
		detail := e.panicLine
		if detail == "" {
			detail = e.console
		}
		return vmm.Exit{Reason: reasonPanic, Detail: detail}
	case e.shutdown == "guest-reset":
		return vmm.Exit{Reason: reasonShutdown, Detail: "the guest rebooted; " + e.console}
	case e.shutdown == "guest-shutdown":
		return vmm.Exit{Reason: reasonShutdown, Detail: e.console}
	case e.closed:
		return vmm.Exit{Reason: reasonClosed}
	}
	err := e.status
	if err == nil {
		err = fmt.Errorf("%s ended by itself", e.processTag)
	} else {
		err = fmt.Errorf("%s: %w", e.processTag, err)
	}
	detail := e.stderr
	if e.passed != "" {
		detail = fmt.Sprintf("QEMU took more memory than its control group's limit of %s bytes", e.passed)
	}
	if detail == "" {
		detail = err.Error()
	}
	return vmm.Exit{Reason: reasonKilled, Detail: detail, Err: err}
}

// shutdownReason is what a SHUTDOWN event gives as its reason.
func shutdownReason(e event) string {
	var data struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(e.data, &data) != nil || data.Reason == "" {
		return "unknown"
	}
	return data.Reason
}
