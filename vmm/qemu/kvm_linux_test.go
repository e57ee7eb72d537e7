package qemu

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestKVMIsTriedAndBounded(t *testing.T) {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	rate, err := kvmTrial(ctx)
	t.Logf("%.1f million instructions a second, %v, in %v", rate/1e6, err, time.Since(began))
	t.Logf("refused: %q", refuseKVM(t.Context()))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}
