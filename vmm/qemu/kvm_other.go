//go:build linux && !amd64

package qemu

import (
	"context"
	"errors"
)

// kvmTrial needs an x86 host: KVM runs guests of the host's own kind only, and our guests are x86.
func kvmTrial(context.Context) (float64, error) {
	return 0, errors.New("this host isn't x86, the guests are")
}
