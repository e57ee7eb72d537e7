package fake

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"flash/memtrack"
)

// commands is everything the fake guest can run. A command gives its exit status, or one of wantsInput, asleep, called, left.
var commands = map[string]func(c *call) int{
	"true":     func(*call) int { return 0 },
	":":        func(*call) int { return 0 },
	"false":    func(*call) int { return 1 },
	"echo":     echo,
	"cat":      cat,
	"sh":       sh,
	"bash":     sh,
	"exit":     exit,
	"set":      set,
	"export":   export,
	"cd":       cd,
	"pwd":      func(c *call) int { c.out.WriteString(c.f.Dir + "\n"); return 0 },
	"sleep":    sleep,
	"ls":       ls,
	"rm":       rm,
	"mkdir":    mkdir,
	"touch":    touch,
	"test":     test,
	"[":        test,
	"head":     head,
	"seq":      seq,
	"date":     date,
	"hostname": func(c *call) int { c.out.WriteString(c.m.kernel.Hostname + "\n"); return 0 },
	"sync":     func(*call) int { return 0 },
	"count":    count,
	"fill":     fill,
	"listen":   listen,
	"crash":    func(c *call) int { c.m.Crash(); return left },
	"panic":    func(c *call) int { c.m.Panic(strings.Join(c.args[1:], " ")); return left },
	"hang":     func(c *call) int { c.m.hang(); return 0 },
	"poweroff": func(c *call) int { c.m.powerOff(); return left },
}

func echo(c *call) int {
	args, end := c.args[1:], "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	c.out.WriteString(strings.Join(args, " ") + end)
	return 0
}

func sh(c *call) int {
	f := &frame{Dir: c.f.Dir, Vars: c.f.Vars, Out: c.f.Opened.Out, Err: c.f.Opened.Err}
	args := c.args[1:]
	inline := false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		inline = inline || strings.Contains(args[0], "c")
		f.Strict = f.Strict || strings.Contains(args[0], "e")
		args = args[1:]
	}
	switch {
	case len(args) == 0:
		fmt.Fprintln(&c.err, "sh: the fake guest's shell wants -c COMMANDS or a file")
		return 2
	case inline:
		f.Source = args[0]
	default:
		p, err := c.readPath(c.f.resolve(args[0]))
		if err != nil {
			fmt.Fprintf(&c.err, "sh: %v\n", err)
			return 127
		}
		f.Source = string(p)
	}
	f.Vars = make(map[string]string, len(c.f.Vars))
	for k, v := range c.f.Vars {
		f.Vars[k] = v
	}
	c.p.rec.Frames = append(c.p.rec.Frames, f)
	return called
}

func exit(c *call) int {
	if len(c.args) > 1 {
		n, err := strconv.Atoi(c.args[1])
		if err != nil {
			return c.fail("%s: a number is wanted", c.args[1])
		}
		c.f.Last = n & 255
	}
	return left
}

func set(c *call) int {
	for _, a := range c.args[1:] {
		c.f.Strict = c.f.Strict || strings.HasPrefix(a, "-") && strings.Contains(a, "e")
	}
	return 0
}

func export(c *call) int {
	for _, a := range c.args[1:] {
		if name, value, ok := strings.Cut(a, "="); ok {
			c.f.Vars[name] = value
		}
	}
	return 0
}

func cd(c *call) int {
	to := "/root"
	if len(c.args) > 1 {
		to = c.f.resolve(c.args[1])
	}
	if !c.isDir(to) {
		return c.fail("%s: no such directory", to)
	}
	c.f.Dir = to
	return 0
}

func sleep(c *call) int {
	if len(c.args) != 2 {
		return c.fail("one number of seconds is wanted")
	}
	seconds, err := strconv.ParseFloat(c.args[1], 64)
	if c.args[1] == "infinity" {
		seconds, err = float64(1<<32), nil
	}
	if err != nil || seconds < 0 || seconds > 1<<32 {
		return c.fail("%s: a number of seconds is wanted", c.args[1])
	}
	r, now := c.p.rec, c.m.cpu.monotonic()
	if r.WakeAt == 0 {
		r.WakeAt = now + time.Duration(seconds*float64(time.Second))
	}
	if now < r.WakeAt {
		c.sleep = r.WakeAt - now
		return asleep
	}
	r.WakeAt = 0
	return 0
}

func test(c *call) int {
	args := c.args[1:]
	if base(c.args[0]) == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return c.fail("] is missing")
		}
		args = args[:len(args)-1]
	}
	holds := false
	switch {
	case len(args) > 1 && args[0] == "!":
		c.args = append([]string{"test"}, args[1:]...)
		return 1 - min(test(c), 1)
	case len(args) == 2:
		_, err := c.readPath(c.f.resolve(args[1]))
		dir := c.isDir(c.f.resolve(args[1]))
		holds = args[0] == "-f" && err == nil || args[0] == "-d" && dir || args[0] == "-e" && (err == nil || dir) ||
			args[0] == "-n" && args[1] != "" || args[0] == "-z" && args[1] == ""
	case len(args) == 3:
		a, errA := strconv.Atoi(args[0])
		b, errB := strconv.Atoi(args[2])
		numbers := errA == nil && errB == nil
		holds = args[1] == "=" && args[0] == args[2] || args[1] == "!=" && args[0] != args[2] ||
			numbers && (args[1] == "-eq" && a == b || args[1] == "-ne" && a != b || args[1] == "-lt" && a < b || args[1] == "-gt" && a > b)
	case len(args) == 1:
		holds = args[0] != ""
	}
	if holds {
		return 0
	}
	return 1
}

func seq(c *call) int {
	first, last := 1, 0
	var err error
	if len(c.args) == 3 {
		first, err = strconv.Atoi(c.args[1])
	}
	if len(c.args) > 1 && err == nil {
		last, err = strconv.Atoi(c.args[len(c.args)-1])
	}
	if err != nil || last-first > 1<<22 {
		return c.fail("one or two numbers are wanted")
	}
	for i := first; i <= last; i++ {
		fmt.Fprintln(&c.out, i)
	}
	return 0
}

func date(c *call) int {
	now := c.m.cpu.wall()
	switch {
	case len(c.args) > 1 && c.args[1] == "+%s":
		fmt.Fprintln(&c.out, now.Unix())
	case len(c.args) > 1 && c.args[1] == "+%s.%N":
		fmt.Fprintf(&c.out, "%d.%09d\n", now.Unix(), now.Nanosecond())
	default:
		fmt.Fprintln(&c.out, now.UTC().Format(time.UnixDate))
	}
	return 0
}

// count says how many steps the guest has taken.
func count(c *call) int {
	n, err := c.m.ram.counter()
	if err != nil {
		return c.fail("%v", err)
	}
	fmt.Fprintln(&c.out, n)
	return 0
}

// fill is "fill PAGES [SEED]": it writes that many pages of scratch memory with bytes that follow from the seed.
func fill(c *call) int {
	if len(c.args) < 2 {
		return c.fail("a number of pages is wanted")
	}
	pages, err := strconv.ParseUint(c.args[1], 10, 32)
	seed := uint64(1)
	if err == nil && len(c.args) > 2 {
		seed, err = strconv.ParseUint(c.args[2], 10, 64)
	}
	room := (c.m.ram.bytes() - c.m.ram.kernelEnd()) / memtrack.PageBytes
	if err != nil || pages > room {
		return c.fail("a number of pages up to %d and a seed are wanted", room)
	}
	p := make([]byte, memtrack.PageBytes)
	for i := range pages {
		rng := rand.New(rand.NewPCG(seed, i))
		for at := 0; at < len(p); at += 8 {
			binary.LittleEndian.PutUint64(p[at:], rng.Uint64())
		}
		if err := c.m.ram.store(p, c.m.ram.kernelEnd()+i*memtrack.PageBytes); err != nil {
			return c.fail("%v", err)
		}
	}
	return 0
}

// listen is "listen PORT TEXT…": until it is killed, connections to the port get the text.
func listen(c *call) int {
	if len(c.args) < 3 {
		return c.fail("a port and a text are wanted")
	}
	port, err := strconv.Atoi(c.args[1])
	if err != nil || port < 1 || port > 65535 {
		return c.fail("%s is no port", c.args[1])
	}
	c.p.listens, c.p.says = port, strings.Join(c.args[2:], " ")+"\n"
	c.sleep = time.Hour
	return asleep
}
