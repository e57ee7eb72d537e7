package qemu

import (
	"context"
	"fmt"
	"os"
	"time"
)

// kvmRate is how many instructions a second the trial guest must run. A processor does some 10⁹; one that another QEMU
// emulates together with its virtualization was seen to do 11–100 million; a KVM that emulates guests instruction by
// instruction, 2 to 3 million.
const kvmRate = 5e6

// trialTime bounds the trial.
const trialTime = 300 * time.Millisecond

// refuseKVM says why KVM can't be used; "" if it truly works. That /dev/kvm opens proves nothing.
func refuseKVM(ctx context.Context) string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	rate, err := kvmTrial(ctx)
	can := parseCPUInfo(string(text)).hardwareVirtualization()
	switch {
	case err != nil && !can:
		return fmt.Sprintf("the CPU has neither vmx nor svm, and a trial guest didn't run: %v", err)
	case err != nil:
		return fmt.Sprintf("a trial guest didn't run: %v", err)
	case !can:
		return fmt.Sprintf("the CPU has neither vmx nor svm; /dev/kvm emulates, and ran a trial guest at %.1f million instructions a second", rate/1e6)
	case rate < kvmRate:
		return fmt.Sprintf("a trial guest ran at %.1f million instructions a second, less than %.0f", rate/1e6, kvmRate/1e6)
	}
	return ""
}

func hostCPUDigest() (string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	return parseCPUInfo(string(text)).digest(), nil
}
