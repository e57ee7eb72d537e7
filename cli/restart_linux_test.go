package cli

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"flash/vmm/host"
)

// awaitRunning waits until a VM has come back by itself: as another process, at its head.
func (c *crashHome) awaitRunning(id string, before int) host.VM {
	c.t.Helper()
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(20 * time.Millisecond) {
		vm := c.vm(id)
		if vm.State == host.StateRunning && vm.PID != before {
			return vm
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("it stays %+v", vm)
		}
	}
}

// Nobody starts it: neither after its QEMU was killed, nor after the daemon was killed with it.
func TestAVMWithThePolicyComesBackWithMemoryAndProcesses(t *testing.T) {
	c := newCrashHome(t)
	c.must("bundle", "build", "busybox")
	c.must("run", "--bundle", "busybox", "--id", vmID, "--mem-mib", "256", "--restart", "always", "--detach")
	// A process that knows a nonce and counts, in memory alone.
	c.must("exec", vmID, "--", "sh", "-c", "mkfifo /dev/shm/ask /dev/shm/say; (n=0; while read x </dev/shm/ask; do n=$((n+1)); echo kept-$n >/dev/shm/say; done) >/dev/null 2>&1 &")
	ask := func() string {
		return strings.TrimSpace(c.must("exec", vmID, "--", "sh", "-c", "echo go >/dev/shm/ask; cat /dev/shm/say"))
	}
	if got := ask(); got != "kept-1" {
		t.Fatalf("the process says %q", got)
	}
	c.must("checkpoint", vmID)
	ask() // which is after the checkpoint, and so is lost

	before := c.vm(vmID).PID
	syscall.Kill(before, syscall.SIGKILL)
	vm := c.awaitRunning(vmID, before)
	if got := ask(); got != "kept-2" || vm.Restart != host.RestartAlways {
		t.Errorf("after its QEMU was killed the process says %q, want kept-2: %+v", got, vm)
	}
	before = c.vm(vmID).PID
	c.killAll(slices.Values(c.processes()))
	c.awaitRunning(vmID, before)
	if got := ask(); got != "kept-2" {
		t.Errorf("after all was killed the process says %q, want kept-2", got)
	}
	ledger := c.must("ledger", vmID, "--json")
	if strings.Count(ledger, `"kind": "restart"`) != 2 || !strings.Contains(ledger, "what it did after checkpoint 1 of ") {
		t.Errorf("the ledger doesn't tell: %s", ledger)
	}
	c.noLeftovers()
}
