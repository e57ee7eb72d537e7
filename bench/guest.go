package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"flash/vmm/guest"
	"flash/vmm/host"
)

// Config is what the workloads on guests run on.
type Config struct {
	Host   host.API
	Bundle string
	MemMiB int
	Runs   int          // samples a figure; 0: 20
	Step   func(string) // told what is being measured; nil: silent
}

func (c Config) say(format string, args ...any) {
	if c.Step != nil {
		c.Step(fmt.Sprintf(format, args...))
	}
}

// guests is one measured VM and the samples taken on it.
type guests struct {
	Config
	id string
}

// run boots a VM for measuring.
func (c Config) run(ctx context.Context, id string) (*guests, error) {
	if c.Runs == 0 {
		c.Runs = 20
	}
	c.say("booting %s", id)
	_, err := c.Host.Create(ctx, host.CreateRequest{ID: id, Bundle: c.Bundle, VCPUs: 1, MemMiB: c.MemMiB, Checkpoints: true})
	return &guests{c, id}, err
}

// end removes the VM.
func (g *guests) end() error {
	return g.Host.Remove(context.Background(), host.RemoveRequest{ID: g.id, Force: true})
}

// exec runs a command and wants exit code 0.
func (g *guests) exec(ctx context.Context, id string, checkpoint bool, argv ...string) (host.ExecResult, error) {
	var out strings.Builder
	r, err := g.Host.Exec(ctx, host.ExecRequest{ID: id, Command: guest.ExecRequest{Argv: argv}, Checkpoint: &checkpoint}, guest.Streams{Stdout: io.Discard, Stderr: &out})
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("%s in %s: exit code %d: %s", strings.Join(argv, " "), id, r.Code, out.String())
	}
	return r, err
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// pause measures the guest-visible pause of a checkpoint after the guest has dirtied about dirtyMiB.
func (g *guests) pause(ctx context.Context, dirtyMiB int, goal string) ([]Figure, error) {
	g.say("checkpoint after %d MiB dirtied", dirtyMiB)
	var pause, pages, stored []float64
	for i := range g.Runs {
		// A new pattern each time, so that the pages really change.
		fill := fmt.Sprintf("yes %08d%d | head -c %d > /dev/shm/dirt", i, dirtyMiB, dirtyMiB<<20)
		if _, err := g.exec(ctx, g.id, false, "sh", "-c", fill); err != nil {
			return nil, err
		}
		c, err := g.Host.Checkpoint(ctx, host.CheckpointRequest{ID: g.id, Label: "bench"})
		if err != nil {
			return nil, err
		}
		pause = append(pause, float64(c.Timing.PauseMicros)/1000)
		pages = append(pages, float64(c.Timing.Pages)/256)
		stored = append(stored, float64(c.Timing.StoreMicros)/1000)
	}
	name := fmt.Sprintf("checkpoint pause, %d MiB written", dirtyMiB)
	return []Figure{
		figure(name, "ms", goal, pause),
		figure(name+": dirty", "MiB", "", pages),
		figure(name+": stored after", "ms", "", stored),
	}, nil
}

// execTrue measures exec of true with and without its checkpoint.
func (g *guests) execTrue(ctx context.Context) ([]Figure, error) {
	g.say("exec true")
	var with, without, ours, pause, bytes, pages []float64
	for range 3 { // warm
		if _, err := g.exec(ctx, g.id, true, "true"); err != nil {
			return nil, err
		}
	}
	for range g.Runs {
		began := time.Now()
		r, err := g.exec(ctx, g.id, true, "true")
		if err != nil {
			return nil, err
		}
		total := time.Since(began)
		with = append(with, millis(total))
		pause = append(pause, float64(r.Checkpoint.Timing.PauseMicros)/1000)
		ours = append(ours, float64(r.Checkpoint.Timing.PauseMicros+r.Checkpoint.Timing.StoreMicros)/1000)
		bytes = append(bytes, float64(r.Checkpoint.NewBytes)/1024)
		pages = append(pages, float64(r.Checkpoint.Timing.Pages))
		began = time.Now()
		if _, err := g.exec(ctx, g.id, false, "true"); err != nil {
			return nil, err
		}
		without = append(without, millis(time.Since(began)))
	}
	return []Figure{
		figure("exec true with its checkpoint", "ms", "≤ 120", with),
		figure("exec true: pause and store", "ms", "≤ 30", ours),
		figure("exec true: pause", "ms", "≤ 8", pause),
		figure("exec true without a checkpoint", "ms", "", without),
		figure("exec true: new store", "KiB", "≤ 256", bytes),
		figure("exec true: dirty pages", "pages", "", pages),
	}, nil
}

// rest leaves the time that lies between two rewinds or forks of a user: the guest that was left ends in it, and as many
// QEMU processes as were taken wait again.
func rest(ctx context.Context, taken int) error {
	t := time.NewTimer(500*time.Millisecond + time.Duration(taken)*250*time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rewind measures from the request to the exit code of the next exec.
func (g *guests) rewind(ctx context.Context) ([]Figure, error) {
	g.say("rewind")
	c, err := g.Host.Checkpoint(ctx, host.CheckpointRequest{ID: g.id, Label: "bench rewind"})
	if err != nil {
		return nil, err
	}
	var first float64
	var all, request []float64
	for i := range g.Runs + 1 {
		if err := rest(ctx, 1); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := g.Host.Rewind(ctx, host.RewindRequest{ID: g.id, Checkpoint: c.Number}); err != nil {
			return nil, err
		}
		answered := time.Since(began)
		if _, err := g.exec(ctx, g.id, false, "true"); err != nil {
			return nil, err
		}
		if i == 0 { // nothing is known of this checkpoint's working set yet
			first = millis(time.Since(began))
			continue
		}
		request = append(request, millis(answered))
		all = append(all, millis(time.Since(began)))
	}
	return []Figure{
		figure("rewind to next exec's exit code", "ms", "≤ 200", all),
		figure("rewind: request answered", "ms", "", request),
		figure("rewind, the first to a checkpoint", "ms", "≤ 200", []float64{first}),
	}, nil
}

// fork measures children of one checkpoint: from the request to every child's first exit code.
func (g *guests) fork(ctx context.Context, count, rounds int, goal string) ([]Figure, error) {
	g.say("fork of %d", count)
	c, err := g.Host.Checkpoint(ctx, host.CheckpointRequest{ID: g.id, Label: "bench fork"})
	if err != nil {
		return nil, err
	}
	var all, firstPSS, laterPSS []float64
	for range rounds {
		if err := rest(ctx, count); err != nil {
			return nil, err
		}
		began := time.Now()
		children, err := g.Host.Fork(ctx, host.ForkRequest{From: g.id, Checkpoint: &c.Number, Count: count})
		if err != nil {
			return nil, err
		}
		var first errgroup.Group // as their users would: at once
		for _, child := range children {
			first.Go(func() error {
				_, err := g.exec(ctx, child.ID, false, "true")
				return err
			})
		}
		if err := first.Wait(); err != nil {
			return nil, err
		}
		all = append(all, millis(time.Since(began)))
		for i, child := range children {
			if pss, ok := guestPSS(child.PID); ok && count > 1 {
				if i == 0 {
					firstPSS = append(firstPSS, pss)
				} else {
					laterPSS = append(laterPSS, pss)
				}
			}
		}
		for _, child := range children {
			if err := g.Host.Remove(ctx, host.RemoveRequest{ID: child.ID, Force: true}); err != nil {
				return nil, err
			}
		}
	}
	out := []Figure{figure(fmt.Sprintf("fork of %d to every first exit code", count), "ms", goal, all)}
	if len(laterPSS) > 0 {
		out = append(out,
			figure(fmt.Sprintf("fork of %d: PSS of guest memory, first child", count), "MiB", "", firstPSS),
			figure(fmt.Sprintf("fork of %d: PSS of guest memory, later children", count), "MiB", "", laterPSS))
	}
	return out, nil
}
