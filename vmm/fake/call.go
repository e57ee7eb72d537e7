package fake

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// call is one command being run.
type call struct {
	m        *Machine
	p        *process
	f        *frame
	args     []string
	in       []byte // what there is of standard input
	inDone   bool   // and there is no more
	out, err bytes.Buffer
	sleep    time.Duration
}

// fail says what went wrong and gives status 1.
func (c *call) fail(format string, args ...any) int {
	fmt.Fprintf(&c.err, base(c.args[0])+": "+format+"\n", args...)
	return 1
}

// readPath reads a file of the disk, or one that the kernel makes up.
func (c *call) readPath(name string) ([]byte, error) {
	m := c.m
	switch name {
	case "/dev/null":
		return nil, nil
	case "/run/flash/generation":
		if m.kernel.Generation == "" {
			return nil, fmt.Errorf("%s: no such file or directory", name)
		}
		return []byte(m.kernel.Generation), nil
	case "/proc/sys/kernel/random/boot_id":
		return []byte(m.kernel.BootID + "\n"), nil
	case "/proc/sys/kernel/random/uuid":
		u := make([]byte, 16)
		if err := m.ram.random(u); err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
	case "/proc/uptime":
		return fmt.Appendf(nil, "%.2f 0.00\n", m.cpu.monotonic().Seconds()), nil
	case "/sys/class/net/eth0/address":
		return []byte(m.kernel.MAC + "\n"), nil
	}
	return m.files.readFile(name)
}

func (c *call) isDir(name string) bool {
	ix, err := c.m.files.read()
	return err == nil && ix.nodes[name].Mode.IsDir()
}

func (c *call) meta(mode fs.FileMode) node { return node{Mode: mode, Time: c.m.cpu.wall()} }

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
