package fake

import (
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
)

func cat(c *call) int {
	if len(c.args) == 1 {
		c.out.Write(c.in)
		if !c.inDone {
			return wantsInput
		}
		return 0
	}
	status := 0
	for _, name := range c.args[1:] {
		p, err := c.readPath(c.f.resolve(name))
		if err != nil {
			status = c.fail("%v", err)
		}
		c.out.Write(p)
	}
	return status
}

func ls(c *call) int {
	names := c.args[1:]
	if len(names) == 0 {
		names = []string{"."}
	}
	ix, err := c.m.files.read()
	if err != nil {
		return c.fail("%v", err)
	}
	status := 0
	for _, name := range names {
		full := c.f.resolve(name)
		n, ok := ix.nodes[full]
		if !ok {
			status = c.fail("%s: no such file or directory", name)
			continue
		}
		if !n.Mode.IsDir() {
			c.out.WriteString(name + "\n")
			continue
		}
		for _, p := range below(ix, full) {
			if p != full && path.Dir(p) == full {
				c.out.WriteString(path.Base(p) + "\n")
			}
		}
	}
	return status
}

func rm(c *call) int {
	all, force, status := false, false, 0
	for _, name := range c.args[1:] {
		if strings.HasPrefix(name, "-") {
			all = all || strings.ContainsAny(name, "rR")
			force = force || strings.Contains(name, "f")
			continue
		}
		if err := c.m.files.remove(c.f.resolve(name), all); err != nil && !(force && strings.Contains(err.Error(), "no such file")) {
			status = c.fail("%v", err)
		}
	}
	return status
}

func mkdir(c *call) int {
	parents, status := false, 0
	for _, name := range c.args[1:] {
		if name == "-p" {
			parents = true
			continue
		}
		if err := c.m.files.makeNode(c.f.resolve(name), c.meta(fs.ModeDir|0o755), parents); err != nil {
			status = c.fail("%v", err)
		}
	}
	return status
}

func touch(c *call) int {
	for _, name := range c.args[1:] {
		full := c.f.resolve(name)
		old, err := c.m.files.readFile(full)
		if err != nil {
			old = nil
		}
		if err := c.m.files.writeFile(full, old, c.meta(0)); err != nil {
			return c.fail("%v", err)
		}
	}
	return 0
}

// head is "head -c BYTES FILE", where FILE may be /dev/zero or /dev/urandom.
func head(c *call) int {
	if len(c.args) != 4 || c.args[1] != "-c" {
		return c.fail("the fake guest knows only: head -c BYTES FILE")
	}
	n, err := strconv.Atoi(c.args[2])
	if err != nil || n < 0 || n > maxFileBytes {
		return c.fail("%s: a number of bytes is wanted", c.args[2])
	}
	p := make([]byte, n)
	switch name := c.f.resolve(c.args[3]); name {
	case "/dev/zero":
	case "/dev/urandom":
		var seed [32]byte
		if err := c.m.ram.random(seed[:]); err != nil {
			return c.fail("%v", err)
		}
		_, _ = rand.NewChaCha8(seed).Read(p) // never fails
	default:
		file, err := c.readPath(name)
		if err != nil {
			return c.fail("%v", err)
		}
		p = file[:min(n, len(file))]
	}
	c.out.Write(p)
	return 0
}
