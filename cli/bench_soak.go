package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"flash/bench"
	"flash/vmm/host"
)

func (a *app) benchSoakCmd() *cobra.Command {
	c := bench.SoakConfig{Guest: bench.LinuxGuest}
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "random operations and kills on real guests, each compared with what it must remember",
		Long: `soak runs VMs in a home of its own, which is removed afterwards, with a daemon of its own, and for as long as asked plays
random commands, checkpoints, rewinds, forks, stops, pins, removals and collections on them. Machines are killed in the middle
of that, and daemon and machines together. A process in each guest, with a nonce, a counter and everything it was told in its
memory and on its disk, is compared with what it must remember at that point of its history.

In the last two fifths of the time the daemon is left alive, and what it holds at rest is counted before and after:
goroutines, descriptors, memory, processes. Sockets, files and processes must be gone when it has been stopped.

A seed repeats the choices, not the instants at which they meet.

Exit codes: 0 nothing found, 1 a failure or a leak, or the soak itself failed; 2 wrong usage.`,
		Example: "  flash bench soak --for 20m --vms 4",
		Args:    cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if c.Seed == 0 {
				c.Seed = rand.Uint64()
			}
			report, err := a.soak(cmd.Context(), c)
			if err != nil {
				return fmt.Errorf("soak with seed %d: %w", c.Seed, err)
			}
			if err := a.show(report, func() string { return soakText(report) }); err != nil {
				return err
			}
			if !report.Clean() {
				return exitStatus(1) // the report has said it all
			}
			return nil
		}),
	}
	cmd.Flags().DurationVar(&c.For, "for", 20*time.Minute, "how long")
	cmd.Flags().Uint64Var(&c.Seed, "seed", 0, "seed of the choices; 0: another one each time")
	cmd.Flags().IntVar(&c.VMs, "vms", 4, "VMs at most at once")
	cmd.Flags().StringVar(&c.Bundle, "bundle", "busybox", "what the guests boot from, built for the run: busybox or debian")
	cmd.Flags().IntVar(&c.MemMiB, "mem-mib", 256, "memory of the guests in MiB")
	return cmd
}

// soak makes a home with a bundle and plays there.
func (a *app) soak(ctx context.Context, c bench.SoakConfig) (_ bench.SoakReport, err error) {
	home, remove, err := a.benchHome("soak-")
	if err != nil {
		return bench.SoakReport{}, err
	}
	place, err := newDaemonPlace(home)
	if err != nil {
		return bench.SoakReport{}, errors.Join(err, remove())
	}
	defer func() {
		err = errors.Join(err, place.Kill(context.WithoutCancel(ctx)), os.RemoveAll(runDir(home)), remove())
	}()
	c.Place = place
	began, shown := time.Now(), time.Time{}
	if isTerminal(a.stderr) && !a.json {
		a.say("soak: %s with seed %d", c.For, c.Seed)
		c.Step = func(s string) { // one caller at a time
			if now := time.Now(); now.Sub(shown) > redrawInterval {
				shown = now
				fmt.Fprintf(a.stderr, "\r\x1b[K%s  %s", now.Sub(began).Round(time.Second), s)
			}
		}
		defer fmt.Fprintln(a.stderr)
	}
	api, err := place.Open(ctx)
	if err != nil {
		return bench.SoakReport{}, err
	}
	if _, err := api.BuildBundle(ctx, host.BuildRequest{Kind: c.Bundle}, nil); err != nil {
		return bench.SoakReport{}, err
	}
	report, err := bench.Soak(ctx, c)
	if log := logPath(home); err != nil || !report.Clean() {
		if p, rerr := os.ReadFile(log); rerr == nil && len(report.Failures) > 0 { // it goes with the home
			const tail = 8 << 10
			report.Failures = append(report.Failures, "the daemon's log ends with: "+string(p[max(0, len(p)-tail):]))
		}
	}
	return report, err
}

// benchHome makes a home below the usual one, whose downloaded packages it shares.
func (a *app) benchHome(prefix string) (home string, remove func() error, err error) {
	base, err := a.homeDir()
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Join(base, "cache"), 0o700); err != nil {
		return "", nil, host.Explain(err, base)
	}
	if home, err = os.MkdirTemp(base, prefix); err != nil {
		return "", nil, host.Explain(err, base)
	}
	remove = func() error { return os.RemoveAll(home) }
	if err := os.Symlink(filepath.Join(base, "cache"), filepath.Join(home, "cache")); err != nil {
		return "", nil, errors.Join(host.Explain(err, home), remove())
	}
	return home, remove, nil
}

func soakText(r bench.SoakReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s, %d comparisons of a guest with what it must remember\n\n", r.Seed, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), r.Looks)
	var rows [][]string
	names := slices.Collect(maps.Keys(r.Operations))
	for name := range r.Cut {
		if _, known := r.Operations[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		rows = append(rows, []string{name, fmt.Sprint(r.Operations[name]), fmt.Sprint(r.Cut[name])})
	}
	b.WriteString(table([]string{"OPERATION", "\tDONE", "\tCUT SHORT"}, rows))
	rows = nil
	for i, c := range r.After {
		rows = append(rows, []string{c.Name, fmt.Sprint(r.Before[i].Value), fmt.Sprint(c.Value)})
	}
	if rows != nil {
		b.WriteString("\n" + table([]string{"THE DAEMON AT REST", "\tAT FIRST", "\tAT LAST"}, rows))
	}
	b.WriteString("\n")
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "✗ %s\n", f)
	}
	for _, l := range r.Leaks {
		fmt.Fprintf(&b, "✗ leak: %s\n", l)
	}
	if r.Clean() {
		b.WriteString("✓ no failures, no leaks\n")
	}
	return b.String()
}
