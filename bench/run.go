package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Run plays every workload and sums them up. Only guests of its own are touched.
func Run(ctx context.Context, c Config, p Plain) (_ Report, err error) {
	r := Report{Machine: machineFacts(ctx, p.Binary)}
	g, err := c.run(ctx, "bench-1")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.end()) }()
	add := func(f []Figure, err error) error {
		r.Figures = append(r.Figures, f...)
		return err
	}
	steps := []func() error{
		func() error { return add(g.execTrue(ctx)) },
		func() error { return add(g.pause(ctx, 6, "≤ 8 at ≤ 8 MiB dirty")) },
		func() error { return add(g.pause(ctx, 60, "≤ 30 at 64 MiB dirty")) },
		func() error { return add(g.rewind(ctx)) },
		func() error { return add(g.fork(ctx, 1, max(1, g.Runs/4), "≤ 200")) },
		func() error { return add(g.fork(ctx, 8, max(1, g.Runs/4), "≤ 1000")) },
		func() error { return add(Ingest(ctx, p.Store, 5)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return r, err
		}
	}
	c.say("plain QEMU")
	plain, err := p.Run(ctx)
	if err != nil {
		return r, err
	}
	for i := range r.Figures {
		switch f := &r.Figures[i]; {
		case strings.Contains(f.Name, "pause") && f.Unit == "ms" && !strings.Contains(f.Name, "store"):
			f.Baseline = &plain.SaveMillis.Median
		case f.Name == "exec true: new store":
			f.Baseline = &plain.SaveKiB.Median
		case strings.HasPrefix(f.Name, "rewind"):
			f.Baseline = &plain.LoadMillis.Median
		}
	}
	r.Figures = append(r.Figures, plain.SaveMillis, plain.LoadMillis, plain.SaveKiB)
	return r, nil
}

// machineFacts says where the figures were taken.
func machineFacts(ctx context.Context, qemu string) map[string]string {
	facts := map[string]string{"cpus": strconv.Itoa(runtime.NumCPU()), "arch": runtime.GOOS + "/" + runtime.GOARCH, "date": time.Now().UTC().Format(time.DateOnly)}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		facts["kernel"] = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				facts["cpu"] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
				break
			}
		}
	}
	if out, err := exec.CommandContext(ctx, qemu, "--version").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		facts["qemu"] = first
	}
	return facts
}
