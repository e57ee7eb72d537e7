package bundle

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path"
	"strings"
)

// neededModules are the drivers of the devices a machine has: virtio over PCI (q35) and MMIO (microvm).
// ext4 and the serial console are built into Debian's kernels.
var neededModules = []string{
	"virtio_pci", "virtio_mmio", "virtio_blk", "virtio_console", "virtio_net", "virtio_rng",
}

// module is one kernel module.
type module struct {
	name    string   // as the kernel says it: with '_', without ".ko"
	file    string   // base name, "virtio-rng.ko"
	depends []string // names of modules that must be loaded before
	data    []byte   // plain ELF
}

// moduleName gives the kernel's name for a module's file: it knows no '-'.
func moduleName(file string) string {
	base, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

// readModule reads a module's own words about itself. The package has no modules.dep: depmod makes it on installation.
func readModule(file string, data []byte) (module, error) {
	m := module{name: moduleName(file), file: path.Base(file), data: data}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return m, fmt.Errorf("kernel module %s: %w", file, err)
	}
	section := f.Section(".modinfo")
	if section == nil || section.Size > 1<<20 {
		return m, fmt.Errorf("kernel module %s says nothing about itself", file)
	}
	info, err := section.Data()
	if err != nil {
		return m, fmt.Errorf("kernel module %s: %w", file, err)
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		key, value, _ := strings.Cut(field, "=")
		if key != "depends" {
			continue
		}
		for name := range strings.SplitSeq(value, ",") {
			if name != "" {
				m.depends = append(m.depends, strings.ReplaceAll(name, "-", "_"))
			}
		}
	}
	return m, nil
}

// loadOrder gives wanted and all they depend on, each after its dependencies. find gives a module by name; ok is false
// for one that is built into the kernel.
func loadOrder(wanted []string, find func(name string) (m module, ok bool, err error)) ([]module, error) {
	var order []module
	const entered, done = 1, 2
	state := map[string]int{}
	var visit func(name, by string) error
	visit = func(name, by string) error {
		switch state[name] {
		case done:
			return nil
		case entered:
			return fmt.Errorf("kernel module %s depends on itself by way of %s", name, by)
		}
		state[name] = entered
		m, ok, err := find(name)
		if err != nil {
			return fmt.Errorf("kernel module %s, needed by %s: %w", name, by, err)
		}
		if ok {
			for _, d := range m.depends {
				if err := visit(d, name); err != nil {
					return err
				}
			}
			order = append(order, m)
		}
		state[name] = done
		return nil
	}
	for _, name := range wanted {
		if err := visit(name, "the machine"); err != nil {
			return nil, err
		}
	}
	return order, nil
}
