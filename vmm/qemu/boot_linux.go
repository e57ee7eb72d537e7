package qemu

import (
	"context"
	"fmt"
	"os"
	"time"

	"flash/vmm"
)

// Boot gives a machine that starts from its kernel at Resume.
func (e *Engine) Boot(ctx context.Context, s vmm.Spec, a vmm.Attach) (vmm.Machine, error) {
	began := time.Now()
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
	boot := &bootFrom{cmdline: s.Cmdline, mac: s.MAC}
	defer boot.close()
	users, _ := e.confined()
	if err := boot.open(s.Kernel, s.Initrd, users != nil); err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	in, err := e.spawn(ctx, shape, boot)
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	m, err := e.assemble(ctx, in, a, nil)
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	m.phase = fresh
	e.supervise(m)
	e.log.Debug("machine made", "pid", in.id.PID, "took", time.Since(began))
	e.pool.warm(shape) // what is booted will be rewound
	return m, nil
}

// open opens what the machine starts from. others: it must be readable by everybody who has a descriptor of it, because it
// is opened once more, by the descriptor, by another user.
func (b *bootFrom) open(kernel, initrd string, others bool) error {
	for i, path := range []string{kernel, initrd} {
		what := []string{"kernel", "initrd"}[i]
		if path == "" && what == "initrd" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("the %s %q isn't a file%s", what, path, because(err))
		}
		b.files = append(b.files, f)
		switch info, err := f.Stat(); {
		case err != nil || !info.Mode().IsRegular():
			return fmt.Errorf("the %s %q isn't a file%s", what, path, because(err))
		case others && info.Mode().Perm()&0o004 == 0:
			return fmt.Errorf("the %s %q has mode %#o: QEMU, which has a user of its own, can't read it", what, path, info.Mode().Perm())
		}
	}
	return nil
}

func (b *bootFrom) close() {
	for _, f := range b.files {
		f.Close()
	}
}
