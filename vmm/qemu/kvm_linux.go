package qemu

import (
	"context"
	"fmt"
	"os"
	"time"
)

// kvmRate is how many instructions a second the trial guest must run, in the fastest of many short rounds. A processor does
// some 10⁹. One that another QEMU emulates together with its virtualization does 20–100 million, and on a host whose cores
// are shared by ten others its mean over the trial was seen below 5 million: such a machine boots a kernel in 10–30 s, so it
// passes. A KVM that emulates guests instruction by instruction does 2–3 million on an idle host, and a kernel would take
// half an hour. Load makes every round but the luckiest slower and none faster than the KVM is: hence the fastest.
const kvmRate = 5e6

// trialTime bounds what the trial guest runs, trialLimit the making of it, too.
const (
	trialTime  = 300 * time.Millisecond
	trialLimit = 5 * time.Second
)

// refuseKVM says why KVM can't be used; "" if it truly works. That /dev/kvm opens proves nothing.
func refuseKVM(ctx context.Context) string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
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
