package qemu

import (
	"context"
	"fmt"
	"os"

	"flash/vmm"
)

// Boot gives a machine that starts from its kernel at Resume.
func (e *Engine) Boot(ctx context.Context, s vmm.Spec, a vmm.Attach) (vmm.Machine, error) {
	host, err := e.Probe(ctx)
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	if s.Facts != (vmm.Facts{}) {
		if err := compareFacts(s.Facts, host.Facts); err != nil {
			return nil, fmt.Errorf("boot: %w", err)
		}
	}
	shape, err := shapeOf(s, a, host.Facts)
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	for what, path := range map[string]string{"kernel": s.Kernel, "initrd": s.Initrd} {
		if path == "" && what == "initrd" {
			continue
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("boot: the %s %q isn't a file%s", what, path, because(err))
		}
	}
	in, err := e.spawn(ctx, shape, &bootFrom{kernel: s.Kernel, initrd: s.Initrd, cmdline: s.Cmdline, mac: s.MAC})
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	m, err := e.assemble(ctx, in, a, nil)
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	m.phase = fresh
	go m.supervise()
	e.pool.warm(shape) // what is booted will be rewound
	return m, nil
}
