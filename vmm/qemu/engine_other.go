//go:build !linux

package qemu

import (
	"context"
	"fmt"

	"flash/vmm"
)

// Engine can't be made here: it needs Linux's userfaultfd, pidfd and memfd to serve a QEMU's memory and to end it surely.
type Engine struct{}

var errNotLinux = fmt.Errorf("qemu: machines run on Linux only, where a process's memory can be served page by page: %w", vmm.ErrUnsupported)

// New says why there is no engine.
func New(Config) (*Engine, error) { return nil, errNotLinux }

func (*Engine) Name() string { return Name }
func (*Engine) Probe(context.Context) (vmm.Capabilities, error) {
	return vmm.Capabilities{}, errNotLinux
}
func (*Engine) CanRestore(context.Context, vmm.Facts) error { return errNotLinux }
func (*Engine) Boot(context.Context, vmm.Spec, vmm.Attach) (vmm.Machine, error) {
	return nil, errNotLinux
}
func (*Engine) Restore(context.Context, vmm.Spec, vmm.Attach, vmm.State) (vmm.Machine, error) {
	return nil, errNotLinux
}
func (*Engine) Close() error { return nil }
